"""``dataclass`` as the standard library's, made in a quarter of the time: a short run is half start-up.

That one makes each class twice and compiles six methods of it; a run has a hundred and twenty classes and
uses few. Here a class is made once, with its slots and methods: ``__init__`` fills in one field after another
and is compiled where it is called often; what is seldom called (``__repr__``, ``__eq__``, ``__hash__``, a
frozen value's refusals) is one function for all; what ``dataclasses.fields`` tells is made when asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform

_C = TypeVar("_C", bound=type)
_MISSING: Any = dataclasses.MISSING
#: Calls of an ``__init__`` before it is compiled, which costs as much as some forty of them.
_FEW_CALLS = 16


class _Field(NamedTuple):
    """A field as a class says it: ``given`` is its default, a ``dataclasses.Field`` or nothing."""

    hint: Any
    given: Any

    @property
    def told(self) -> Any:
        """Its ``dataclasses.Field``."""
        given = self.given
        return given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(*, frozen: bool = False, slots: bool = True, eq: bool = True) -> Callable[[_C], _C]:
    """Return a decorator that makes a class a dataclass: ``fields`` and ``replace`` know it.

    Its fields go by ``__slots__``; ``slots`` is written out for readers and type checkers.
    """
    del slots

    def make(cls: _C) -> _C:
        made: _C = _made(cls, frozen, eq)
        return made

    return make


class _Asked:
    """``__dataclass_fields__`` or ``__dataclass_params__``: made by the standard library when asked for."""

    def __init__(self, fields: dict[str, _Field], frozen: bool) -> None:
        self.fields, self.frozen = fields, frozen

    def __set_name__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, value: object, cls: Any) -> Any:
        body = {name: field.given for name, field in self.fields.items() if field.given is not _MISSING}
        body["__annotations__"] = {name: field.hint for name, field in self.fields.items()}
        body |= {"__module__": self.owner.__module__, "__doc__": "none is made up where there is one"}
        twin: Any = type(self.owner.__name__, (), body)
        frozen = self.frozen and self.name == "__dataclass_params__"  # compiles what fields do not tell
        made = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen)(twin)
        told = getattr(made, self.name)
        setattr(self.owner, self.name, told)
        return told


def _fields_of(cls: Any) -> dict[str, _Field]:
    """Return the fields of a class and its bases, in the order in which the standard library takes them."""
    found: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= vars(base).get("_fields_as_said", {})
    for name, hint in vars(cls).get("__annotations__", {}).items():
        if not str(hint).removeprefix("typing.").startswith("ClassVar"):
            found[name] = _Field(hint, vars(cls).get(name, _MISSING))
    return found


def _made(cls: Any, frozen: bool, eq: bool) -> Any:
    fields = _fields_of(cls)
    inherited = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    methods: dict[str, Any] = {"__repr__": _repr}
    methods["__init__"] = _compiled_when_called_often(fields, frozen, lambda: made)
    methods["__match_args__"] = tuple(name for name, field in fields.items() if _is_init(field))
    if eq:
        methods["__eq__"], hashed = _comparison(
            [name for name, field in fields.items() if _is_compared(field)]
        )
        if "__eq__" not in vars(cls):
            methods["__hash__"] = hashed if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods |= {"__getstate__": lambda self: [getattr(self, name) for name in fields]}
        methods |= {"__setstate__": _set_state}
    body = {name: own for name, own in vars(cls).items() if name not in fields}
    body = {**methods, **body, "__slots__": tuple(name for name in fields if name not in inherited)}
    body["_fields_as_said"] = fields
    for asked in ("__dataclass_fields__", "__dataclass_params__"):
        body[asked] = _Asked(fields, frozen)
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    made: Any = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _is_init(field: _Field) -> bool:
    return not isinstance(field.given, dataclasses.Field) or field.given.init


def _is_compared(field: _Field) -> bool:
    return not isinstance(field.given, dataclasses.Field) or field.given.compare


def _compiled_when_called_often(
    fields: dict[str, _Field], frozen: bool, cls: Callable[[], Any]
) -> Callable[..., None]:
    """Return an ``__init__`` that puts a compiled one in its place when it has been called a few times.

    What a call gives wrongly is the compiled one's to refuse.
    """
    taken = [name for name, field in fields.items() if _is_init(field)]
    calls = 0

    def first(self: Any, *args: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        given = dict(zip(taken, args, strict=False)) | named
        odd = len(given) != len(args) + len(named) or not given.keys() <= set(taken)
        if calls > _FEW_CALLS or odd or not _filled(self, fields, given, frozen):
            compiled = _init(cls(), fields, frozen)
            cls().__init__ = compiled
            compiled(self, *args, **named)

    return first


def _filled(value: Any, fields: dict[str, _Field], given: dict[str, Any], frozen: bool) -> bool:
    """Set all fields of a new value; return False where one is missing."""
    put: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr
    for name, field in fields.items():
        if name in given:
            put(value, name, given[name])
        elif not isinstance(field.given, dataclasses.Field):
            if field.given is _MISSING:
                return False
            put(value, name, field.given)
        elif (make := field.given.default_factory) is not dataclasses.MISSING:
            put(value, name, make())
        elif field.given.default is not _MISSING:
            put(value, name, field.given.default)
        elif field.given.init:
            return False
    if hasattr(value, "__post_init__"):
        value.__post_init__()
    return True


def _init(cls: Any, fields: dict[str, _Field], frozen: bool) -> Callable[..., None]:
    """Compile ``__init__``: it takes the fields in order, and calls ``__post_init__`` where there is one."""
    taken, lines = [], []
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    for name, field in fields.items():
        each, value = field.told, name
        if each.default_factory is not _MISSING:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}()"
            if each.init:
                taken.append(f"{name}=_missing")
                value = f"{value} if {name} is _missing else {name}"
        elif each.default is not _MISSING:
            known[f"_default_{name}"] = each.default
            taken.append(f"{name}=_default_{name}") if each.init else None
            value = name if each.init else f"_default_{name}"
        elif each.init:
            taken.append(name)
        else:
            continue
        lines.append(f" _set(self,{name!r},{value})" if frozen else f" self.{name}={value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__({','.join(['self', *taken])}):\n" + ("\n".join(lines) or " pass")
    exec(text, known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _comparison(names: list[str]) -> tuple[Callable[..., Any], Callable[..., int]]:
    """Return ``__eq__`` and ``__hash__`` by these fields."""
    values = attrgetter(*names) if names else type

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return equal, hashed


def _repr(self: Any) -> str:
    said: dict[str, _Field] = self._fields_as_said
    shown = [name for name, field in said.items() if field.told.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{self.__class__.__qualname__}({values})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self._fields_as_said, state, strict=True):
        object.__setattr__(self, name, value)
