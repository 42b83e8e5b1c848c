"""The rows of a registry, imported on demand: a run uses one of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Rows(Mapping[str, _T], Generic[_T]):
    """Name → object in a module of ``package``, written ``module:Name``; iterating names imports nothing."""

    def __init__(self, package: str, attributes: Mapping[str, str]) -> None:
        self._package = package
        self._attributes = attributes

    def __getitem__(self, name: str) -> _T:
        module, _, attribute = self._attributes[name].partition(":")
        found: _T = getattr(import_module(f"{self._package}.{module}"), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)
