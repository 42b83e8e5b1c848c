"""What a scenario's sections have in common: known keys, read as values that nobody changes.

A section is written as a pydantic model is, and pydantic's core checks it (``checks.py``). The layer between,
which pydantic builds for every class when it is imported, takes a third of a short run; a run needs the keys,
the defaults, and the checks of those few sections that its scenario gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar, get_args, get_type_hints

#: The default of a key that must be given.
REQUIRED: Any = object()
_S = TypeVar("_S", bound="Section")
_F = TypeVar("_F")


def of_section(find: Callable[[type[Section]], _F]) -> Callable[[type[Section]], _F]:
    """Return ``find``, which is asked once a section."""
    known: dict[type[Section], _F] = {}

    def found(section: type[Section]) -> _F:
        if section not in known:
            known[section] = find(section)
        return known[section]

    return found


class Key:
    """One key of a section: its default, its limits, what it means, and its type (``hint``).

    ``annotation`` is the type without the marks around it; ``metadata`` are those marks.
    """

    __slots__ = ("default", "default_factory", "description", "hint", "limits", "takes_given")

    def __init__(self, default: Any, description: str = "", limits: Mapping[str, Any] | None = None) -> None:
        self.default, self.description, self.limits = default, description, limits or {}
        self.default_factory: Callable[..., Any] | None = None
        self.takes_given = False
        self.hint: Any = None

    @property
    def annotation(self) -> Any:
        """Its type without marks."""
        return self.hint.__origin__ if self.metadata else self.hint

    @property
    def metadata(self) -> tuple[Any, ...]:
        """The marks of its type."""
        marks: tuple[Any, ...] = getattr(self.hint, "__metadata__", ())
        return marks

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED and self.default_factory is None

    def value(self, given: Mapping[str, Any]) -> Any:
        """Return its default beside the keys before it."""
        if self.default_factory is None:
            return self.default
        return self.default_factory(given) if self.takes_given else self.default_factory()

    def of_type(self, hint: Any) -> Key:
        """Return it with its type."""
        own = Key(self.default, self.description, self.limits)
        own.default_factory, own.takes_given, own.hint = self.default_factory, self.takes_given, hint
        return own


def Field(
    default: Any = REQUIRED,
    *,
    description: str = "",
    default_factory: Callable[[], Any] | None = None,
    default_from: Callable[[Mapping[str, Any]], Any] | None = None,
    **limits: Any,
) -> Any:
    """Return a key: its default, what it means, and its limits (``ge``, ``gt``, ``le``, ``lt``, ``pattern``).

    ``default_from`` takes the values of the keys before it.
    """
    key = Key(default, description, limits)
    key.default_factory, key.takes_given = default_from or default_factory, default_from is not None
    return key


class Parsed:
    """Marks a type that is written another way, such as a time with its unit."""

    __slots__ = ("parse", "render")

    def __init__(self, parse: Callable[[Any], Any], render: Callable[[Any], Any]) -> None:
        self.parse, self.render = parse, render


class Checked:
    """Marks a type with a check of its own, which returns the value or raises ValueError."""

    __slots__ = ("func",)

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func


class _Keys:
    """A section's keys: found out when they are first asked for, as most sections of a run are not."""

    def __get__(self, instance: Section | None, section: type[Section]) -> Mapping[str, Key]:
        return _keys(section)


class Section:
    """A mapping of known keys only; values keep the type they were written with.

    Made directly it takes its values as they are; ``checks.validated`` checks what somebody has written.
    """

    #: The keys by name, those of the class it extends first.
    model_fields = _Keys()

    def __init__(self, **values: Any) -> None:
        own = self.__dict__
        for name, key in self.model_fields.items():
            own[name] = values[name] if name in values else key.value(own)
        if unknown := values.keys() - own.keys():
            raise TypeError(f"{type(self).__name__} has no key {', '.join(sorted(unknown))}")

    @classmethod
    def extended(cls, name: str, keys: Mapping[str, tuple[Any, Any]]) -> type[Self]:
        """Return a section with further keys, each its type and its default."""
        types = {key: hint for key, (hint, _) in keys.items()}
        defaults = {key: default for key, (_, default) in keys.items()}
        own = {"__doc__": cls.__doc__, "__module__": cls.__module__, "__annotations__": types, **defaults}
        made_here: type[Self] = type(name, (cls,), own)
        return made_here

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return it with other values, which are not checked."""
        return made(type(self), {**self.__dict__, **update})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


def made(section: type[_S], values: dict[str, Any]) -> _S:
    """Return a section of all its values."""
    own = object.__new__(section)
    own.__dict__.update(values)
    return own


@of_section
def _keys(section: type[Section]) -> Mapping[str, Key]:
    found = {}
    for name, hint in get_type_hints(section, include_extras=True).items():
        default = getattr(section, name, REQUIRED)
        found[name] = (default if isinstance(default, Key) else Key(default)).of_type(hint)
    return found


def sections_in(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections that an annotation names."""
    for part in (annotation, *_parts(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            yield part


def plain_values(section: Section) -> dict[str, Any]:
    """Return a section as plain values in the schema's order, quantities written with their units."""
    renders = _renders(type(section))
    return {name: _plain(value, renders.get(name)) for name, value in section.__dict__.items()}


def _plain(value: Any, render: Callable[..., Any] | None) -> Any:
    if value is None:
        return None
    if render is not None:
        return render(value)
    if isinstance(value, Section):
        return plain_values(value)
    if isinstance(value, dict):
        return {key: _plain(own, None) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(own, None) for own in value]
    return value


@of_section
def _renders(section: type[Section]) -> dict[str, Callable[..., Any]]:
    """Return by key how its values are written, of those that have a way of their own."""
    found = {}
    for name, key in section.model_fields.items():
        for part in (*key.metadata, *_parts(key.annotation)):
            if isinstance(part, Parsed):
                found[name] = part.render
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    for part in get_args(annotation):
        yield part
        yield from _parts(part)
