"""A section's checks, as pydantic's core runs them: built from its keys when something is first checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import ge, gt, le, lt
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic_core import CoreConfig, CoreSchema, PydanticKnownError, SchemaValidator, core_schema

from kvcache_sim.scenario.section import Checked, Key, Parsed, Section, made, of_section

_S = TypeVar("_S", bound=Section)
_CONFIG = CoreConfig(strict=True, allow_inf_nan=False, extra_fields_behavior="forbid")
_PLAIN: dict[Any, Callable[..., CoreSchema]] = {
    int: core_schema.int_schema,
    float: core_schema.float_schema,
    str: core_schema.str_schema,
    bool: core_schema.bool_schema,
    Any: core_schema.any_schema,
}
#: A limit → what pydantic calls its breach, and whether a value keeps it.
_LIMITS: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "ge": ("greater_than_equal", ge),
    "gt": ("greater_than", gt),
    "le": ("less_than_equal", le),
    "lt": ("less_than", lt),
}


def validated(section: type[_S], values: object) -> _S:
    """Return what was written as a section, defaults filled in; pydantic's ValidationError otherwise."""
    return (
        values
        if isinstance(values, section)
        else made(section, _validator(section).validate_python(values)[0])
    )


@of_section
def _validator(section: type[Section]) -> SchemaValidator:
    fields = {name: core_schema.model_field(_of_key(key)) for name, key in section.model_fields.items()}
    return SchemaValidator(core_schema.model_fields_schema(fields, model_name=section.__name__), _CONFIG)


def _of_key(key: Key) -> CoreSchema:
    schema = _of_type(key.hint, key.limits)
    if key.required:
        return schema
    if key.default_factory is None:
        return core_schema.with_default_schema(schema, default=key.default)
    return core_schema.with_default_schema(
        schema, default_factory=key.default_factory, default_factory_takes_data=key.takes_given
    )


def _of_type(hint: Any, limits: Mapping[str, Any]) -> CoreSchema:
    """Return the check of a type; limits are those of the value where there is one."""
    parts = get_args(hint)
    match get_origin(hint):
        case _ if isinstance(hint, type) and issubclass(hint, Section):
            # by itself: a scenario gives few of its sections, and only those are built
            return core_schema.no_info_plain_validator_function(partial(validated, hint))
        case origin if origin is Annotated:
            inner = _of_type(parts[0], {})
            for mark in parts[1:]:
                inner = _marked(inner, mark)
            return _limited(inner, limits)
        case origin if origin in (Union, UnionType):
            arms: list[Any] = [_of_type(part, limits) for part in parts if part is not NoneType]
            inner = arms[0] if len(arms) == 1 else core_schema.union_schema(arms)
            return inner if NoneType not in parts else core_schema.nullable_schema(inner)
        case origin if origin is Literal:
            return core_schema.literal_schema(list(parts))
        case origin if origin is list:
            return core_schema.list_schema(_of_type(parts[0], {}))
        case origin if origin is dict:
            return core_schema.dict_schema(_of_type(parts[0], {}), _of_type(parts[1], {}))
    return _PLAIN[hint](**limits)


def _marked(inner: CoreSchema, mark: Any) -> CoreSchema:
    if isinstance(mark, Parsed):
        return core_schema.no_info_before_validator_function(mark.parse, inner)
    if isinstance(mark, Checked):
        return core_schema.no_info_after_validator_function(mark.func, inner)
    return _limited(inner, mark.limits)


def _limited(inner: CoreSchema, limits: Mapping[str, Any]) -> CoreSchema:
    """Return a check that is followed by limits; what it tells of them is what was written."""
    for name, limit in limits.items():
        inner = core_schema.no_info_after_validator_function(partial(_within, name, limit), inner)
    return inner


def _within(name: str, limit: Any, value: Any) -> Any:
    kind, keeps = _LIMITS[name]
    if not keeps(value, limit):
        raise PydanticKnownError(kind, {name: limit})
    return value
