"""Base of a scenario's sections: frozen structs with known keys, checked by msgspec.

A key is an annotated field: its type with limits, its meaning (``about``), and its default. The written
form of a quantity, such as a time with its unit, differs from its value: ``quantity`` parses and renders it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, TypeVar, dataclass_transform, get_args

import msgspec
from msgspec import Meta

from kvcache_sim.base.errors import UsageError

S = TypeVar("S", bound="Section")
T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)
_PLAIN = (str, int, float, NoneType)


class Quantity(type):
    """The type of a key whose written form differs from its value."""

    holds: type
    parse: Callable[[Any], Any]
    render: Callable[[Any], Any]
    #: Types of the written form in the JSON Schema.
    written: list[str]

    def __instancecheck__(cls, value: object) -> bool:
        """Return True if a value has the parsed type: msgspec checks the result of ``parse``."""
        return isinstance(value, cls.holds)


def quantity(
    holds: type, parse: Callable[[Any], Any], render: Callable[[Any], Any], *written: str
) -> Quantity:
    """Return the type of a key with values of type ``holds``; ``parse`` raises UsageError if invalid.

    ``written``: the JSON types of its written form, a string unless given.
    """
    functions = {"parse": staticmethod(parse), "render": staticmethod(render)}
    return Quantity("quantity", (), {"holds": holds, "written": list(written or ("string",)), **functions})


def about(description: str, **limits: Any) -> Meta:
    """Return a key's meaning and limits (``ge``, ``gt``, ``le``, ``lt``, ``pattern``) as metadata."""
    return Meta(description=description, **limits)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of known keys only.

    Direct construction takes values as they are; ``converted`` checks written values.
    """


def extended(base: type[Section], name: str, more: Mapping[str, tuple[Any, Any]]) -> Any:
    """Return a section with further keys, each with its type and default."""
    fields = [(key, *member) for key, member in more.items()]
    namespace = {"__doc__": base.__doc__}
    return msgspec.defstruct(
        name, fields, bases=(base,), namespace=namespace, module=base.__module__, kw_only=True
    )


def converted(kind: type[T], values: object) -> T:
    """Return written values as a type, defaults filled in; msgspec's ValidationError otherwise."""
    return msgspec.convert(values, kind, dec_hook=_parsed)


def _parsed(kind: Any, value: object) -> Any:
    try:
        return kind.parse(value)
    except UsageError as error:
        raise ValueError(error) from None  # msgspec adds the path


@cache
def keys(section: type[Section]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return a section's keys by name."""
    return {each.name: each for each in msgspec.structs.fields(section)}


@cache
def defaults(section: type[S]) -> S:
    """Return a section with every default; None stands for required keys."""
    return section(**{each.name: None for each in msgspec.structs.fields(section) if each.required})


def changed(section: Section) -> list[str]:
    """Return the keys with non-default values."""
    usual = defaults(type(section))
    return [key for key in section.__struct_fields__ if getattr(section, key) != getattr(usual, key)]


def lowered(kind: type[V], section: Section, **values: Any) -> V:
    """Return settings of a kind; fields that are not given come from the section's key of the same name."""
    given = section.__struct_fields__
    for name in kind.__struct_fields__:
        if name not in values:
            values[name] = getattr(section, name if name in given else name.removesuffix("_ns"))
    return kind(**values)


def parts(hint: Any) -> Iterator[Any]:
    """Yield a type, the types in it and their metadata."""
    yield hint
    for part in get_args(hint):
        yield from parts(part)


def section_in(hint: Any) -> type[Section] | None:
    """Return the first section that a type contains."""
    return next((part for part in parts(hint) if isinstance(part, type) and issubclass(part, Section)), None)


def plain_values(value: Any) -> Any:
    """Return a section as plain values in the schema's order, quantities written with their units.

    Nested lists and mappings are converted too.
    """
    if isinstance(value, (list, tuple)):
        return [each if isinstance(each, _PLAIN) else plain_values(each) for each in value]
    if isinstance(value, Section):
        section, value = type(value), msgspec.structs.asdict(value)
        for key, kind in _quantities(section):
            value[key] = None if value[key] is None else kind.render(value[key])
    return {key: each if isinstance(each, _PLAIN) else plain_values(each) for key, each in value.items()}


@cache
def _quantities(section: type[Section]) -> list[tuple[str, Quantity]]:
    """Return the keys that hold quantities; a type may have metadata and may be a union with None."""
    return [
        (key, arm)
        for key, each in keys(section).items()
        for kind in [getattr(each.type, "__origin__", each.type)]
        for arm in get_args(kind) or (kind,)
        if isinstance(arm, Quantity)
    ]
