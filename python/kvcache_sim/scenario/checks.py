"""A section's checks, as pydantic's core runs them: built from its keys when something is first checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import ge, gt, le, lt
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from kvcache_sim.scenario.pydantics_core import PydanticKnownError, SchemaValidator
from kvcache_sim.scenario.section import Checked, Key, Parsed, Section, made, of_section

_S = TypeVar("_S", bound=Section)
#: A check as pydantic's core takes it: a mapping with its ``type`` (``pydantic_core.core_schema`` has them).
_Check = Any
_CONFIG: Any = {"strict": True, "allow_inf_nan": False, "extra_fields_behavior": "forbid"}
_PLAIN: dict[Any, str] = {int: "int", float: "float", str: "str", bool: "bool", Any: "any"}
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
    fields = {
        name: {"type": "model-field", "schema": _of_key(key)} for name, key in section.model_fields.items()
    }
    check: _Check = {"type": "model-fields", "fields": fields, "model_name": section.__name__}
    return SchemaValidator(check, _CONFIG)


def _of_key(key: Key) -> _Check:
    check = _of_type(key.hint, key.limits)
    if key.required:
        return check
    if key.default_factory is None:
        return {"type": "default", "schema": check, "default": key.default}
    makes = {"default_factory": key.default_factory, "default_factory_takes_data": key.takes_given}
    return {"type": "default", "schema": check, **makes}


def _of_type(hint: Any, limits: Mapping[str, Any]) -> _Check:
    """Return the check of a type; limits are those of the value where there is one."""
    parts = get_args(hint)
    match get_origin(hint):
        case _ if isinstance(hint, type) and issubclass(hint, Section):
            # by itself: a scenario gives few of its sections, and only those are built
            return _calls("plain", partial(validated, hint))
        case origin if origin is Annotated:
            inner = _of_type(parts[0], {})
            for mark in parts[1:]:
                inner = _marked(inner, mark)
            return _limited(inner, limits)
        case origin if origin in (Union, UnionType):
            arms: list[Any] = [_of_type(part, limits) for part in parts if part is not NoneType]
            inner = arms[0] if len(arms) == 1 else {"type": "union", "choices": arms}
            return inner if NoneType not in parts else {"type": "nullable", "schema": inner}
        case origin if origin is Literal:
            return {"type": "literal", "expected": list(parts)}
        case origin if origin is list:
            return {"type": "list", "items_schema": _of_type(parts[0], {})}
        case origin if origin is dict:
            keys, values = _of_type(parts[0], {}), _of_type(parts[1], {})
            return {"type": "dict", "keys_schema": keys, "values_schema": values}
    return {"type": _PLAIN[hint], **limits}


def _calls(when: str, function: Callable[[Any], Any], inner: _Check = None) -> _Check:
    """Return a check that calls a function: before or after another check, or ``plain`` by itself."""
    check: _Check = {"type": f"function-{when}", "function": {"type": "no-info", "function": function}}
    return check if inner is None else {**check, "schema": inner}


def _marked(inner: _Check, mark: Any) -> _Check:
    if isinstance(mark, Parsed):
        return _calls("before", mark.parse, inner)
    if isinstance(mark, Checked):
        return _calls("after", mark.func, inner)
    return _limited(inner, mark.limits)


def _limited(inner: _Check, limits: Mapping[str, Any]) -> _Check:
    """Return a check that is followed by limits; what it tells of them is what was written."""
    for name, limit in limits.items():
        inner = _calls("after", partial(_within, name, limit), inner)
    return inner


def _within(name: str, limit: Any, value: Any) -> Any:
    kind, keeps = _LIMITS[name]
    if not keeps(value, limit):
        raise PydanticKnownError(kind, {name: limit})
    return value
