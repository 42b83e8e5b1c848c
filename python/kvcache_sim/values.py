"""``dataclass`` as the standard library's, made in a fifth of the time: a short run is half start-up.

That one compiles six methods a class, and a run has two hundred classes. Here ``__init__`` is compiled, when
it is first called; what is seldom called (``__repr__``, ``__eq__``, ``__hash__``, a frozen value's refusals)
is one function for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_C = TypeVar("_C", bound=type)
_MISSING: Any = dataclasses.MISSING


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(*, frozen: bool = False, slots: bool = True, eq: bool = True) -> Callable[[_C], _C]:
    """Return a decorator that makes a class a dataclass: ``fields`` and ``replace`` know it.

    Its fields go by ``__slots__``; ``slots`` is written out for readers and type checkers.
    """

    def make(cls: _C) -> _C:
        made: _C = _made(cls, frozen, slots, eq)
        return made

    return make


def _made(cls: Any, frozen: bool, slots: bool, eq: bool) -> Any:
    own = set(vars(cls))
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    fields = dataclasses.fields(made)
    names = [each.name for each in fields]
    methods: dict[str, Any] = {"__init__": _compiled_when_called(made, fields, frozen), "__repr__": _repr}
    if eq:
        compared = [each.name for each in fields if each.compare]
        methods["__eq__"], hashed = _comparison(compared)
        methods["__hash__"] = hashed if frozen else None
        if "__eq__" in own:
            del methods["__hash__"]
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods |= {"__getstate__": lambda self: [getattr(self, name) for name in names]}
        methods |= {"__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _compiled_when_called(
    cls: Any, fields: tuple[dataclasses.Field[Any], ...], frozen: bool
) -> Callable[..., None]:
    """Return an ``__init__`` that puts the compiled one in its place: most classes of a run stay unused."""

    def first(self: Any, *args: Any, **named: Any) -> None:
        compiled = _init(cls, fields, frozen)
        cls.__init__ = compiled
        compiled(self, *args, **named)

    return first


def _init(cls: Any, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """Compile ``__init__``: it takes the fields in order, and calls ``__post_init__`` where there is one."""
    taken, lines = [], []
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    for each in fields:
        name, value = each.name, each.name
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
    shown = [each.name for each in dataclasses.fields(self) if each.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{self.__class__.__qualname__}({values})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
