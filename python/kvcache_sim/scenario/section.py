"""What a scenario's sections have in common: frozen structs of known keys, which msgspec checks.

A key is an annotated field: its type with its limits, ``about`` what it means, and its default. A quantity,
such as a time with its unit, is written another way than it is held: a ``quantity`` parses and renders it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, TypeVar, dataclass_transform, get_args

import msgspec
from msgspec import Meta

from kvcache_sim.errors import UsageError

S = TypeVar("S", bound="Section")
T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)
_PLAIN = (str, int, float, NoneType)


class Quantity(type):
    """The type of a key whose values are written another way than they are held."""

    holds: type
    parse: Callable[[Any], Any]
    render: Callable[[Any], str]

    def __instancecheck__(cls, value: object) -> bool:
        """Return whether a value is held so: msgspec asks it of what ``parse`` returns."""
        return isinstance(value, cls.holds)


def quantity(holds: type, parse: Callable[[Any], Any], render: Callable[[Any], str]) -> Quantity:
    """Return the type of a key whose values are ``holds``; ``parse`` raises UsageError for what is none."""
    return Quantity(
        "quantity", (), {"holds": holds, "parse": staticmethod(parse), "render": staticmethod(render)}
    )


def about(description: str, **limits: Any) -> Meta:
    """Return what a key means, and its limits (``ge``, ``gt``, ``le``, ``lt``, ``pattern``)."""
    return Meta(description=description, **limits)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of known keys only.

    Made directly it takes its values as they are; ``converted`` checks what was written.
    """


def extended(base: type[Section], name: str, more: Mapping[str, tuple[Any, Any]]) -> Any:
    """Return a section with further keys, each its type and its default."""
    fields = [(key, *own) for key, own in more.items()]
    own = {"__doc__": base.__doc__}
    return msgspec.defstruct(name, fields, bases=(base,), namespace=own, module=base.__module__, kw_only=True)


def converted(kind: type[T], values: object) -> T:
    """Return written values as a type, defaults filled in; msgspec's ValidationError otherwise."""
    return msgspec.convert(values, kind, dec_hook=_parsed)


def _parsed(kind: Any, value: object) -> Any:
    try:
        return kind.parse(value)
    except UsageError as error:
        raise ValueError(error) from None  # msgspec reports it with its path


@cache
def keys(section: type[Section]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return a section's keys by name."""
    return {each.name: each for each in msgspec.structs.fields(section)}


@cache
def defaults(section: type[S]) -> S:
    """Return a section that has every default; None stands for what must be given."""
    return section(**{each.name: None for each in msgspec.structs.fields(section) if each.required})


def changed(own: Section) -> list[str]:
    """Return the keys whose values are not their defaults."""
    usual = defaults(type(own))
    return [key for key in own.__struct_fields__ if getattr(own, key) != getattr(usual, key)]


def lowered(kind: type[V], section: Section, **own: Any) -> V:
    """Return settings of a kind; a field that is not given is the section's key of that name, units apart."""
    given = section.__struct_fields__
    for name in kind.__struct_fields__:
        if name not in own:
            own[name] = getattr(section, name if name in given else name.removesuffix("_ns"))
    return kind(**own)


def parts(hint: Any) -> Iterator[Any]:
    """Yield a type, the types in it and the marks on them."""
    yield hint
    for part in get_args(hint):
        yield from parts(part)


def section_in(hint: Any) -> type[Section] | None:
    """Return the first section that a type names."""
    return next((part for part in parts(hint) if isinstance(part, type) and issubclass(part, Section)), None)


def plain_values(own: Any) -> Any:
    """Return a section as plain values in the schema's order, quantities written with their units.

    Lists and mappings in it are taken apart too.
    """
    if isinstance(own, (list, tuple)):
        return [each if isinstance(each, _PLAIN) else plain_values(each) for each in own]
    if isinstance(own, Section):
        section, own = type(own), msgspec.structs.asdict(own)
        for key, kind in _quantities(section):
            own[key] = None if own[key] is None else kind.render(own[key])
    return {key: each if isinstance(each, _PLAIN) else plain_values(each) for key, each in own.items()}


@cache
def _quantities(section: type[Section]) -> list[tuple[str, Quantity]]:
    """Return the keys that hold quantities; a type has its marks around it, and may be a union with None."""
    return [
        (key, arm)
        for key, each in keys(section).items()
        for kind in [getattr(each.type, "__origin__", each.type)]
        for arm in get_args(kind) or (kind,)
        if isinstance(arm, Quantity)
    ]
