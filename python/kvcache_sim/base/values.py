"""Frozen values: dataclasses as msgspec structs, which are created in a fraction of the time."""

from __future__ import annotations

import dataclasses
import sys
from functools import cache
from typing import Any, ClassVar, dataclass_transform

# msgspec imports typing_extensions before the standard library, which has everything from Python 3.11 on:
# without typing_extensions its import takes two thirds of the time.
_modules: dict[str, Any] = sys.modules
_unwanted = _modules.setdefault("typing_extensions", None) is None
from msgspec import Struct as Struct  # noqa: E402 - imported here before any other module
from msgspec import field as field  # noqa: E402

if _unwanted:
    del _modules["typing_extensions"]


@cache
def _fields(cls: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
    types: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        types |= vars(base).get("__annotations__", {})
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    values: list[Any] = [dataclasses.MISSING] * (len(names) - len(defaults)) + list(defaults)
    listed = []
    for name, value in zip(names, values, strict=True):
        given = "default_factory" if hasattr(value, "factory") else "default"
        listed.append((name, types[name], dataclasses.field(**{given: getattr(value, "factory", value)})))
    # Only its fields are read: without methods, and without the signature that a missing docstring would be.
    bare: dict[str, Any] = {"init": False, "repr": False, "eq": False, "namespace": {"__doc__": cls.__name__}}
    made: Any = dataclasses.make_dataclass(cls.__name__, listed, **bare)
    fields: dict[str, dataclasses.Field[Any]] = made.__dataclass_fields__
    return fields


class _Fields:
    """The fields of a class, as ``replace``, ``fields`` and ``asdict`` of ``dataclasses`` expect them."""

    def __get__(self, _: object, cls: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
        return _fields(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True):
    """An immutable class of annotated fields, compared and hashed by value."""

    __dataclass_fields__: ClassVar[Any] = _Fields()
