"""The rows of a registry, imported when they are asked for: a run uses one of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Rows(Mapping[str, _T], Generic[_T]):
    """Name → what a module of ``room`` defines, written ``module:Name``; names alone import nothing."""

    def __init__(self, room: str, places: Mapping[str, str]) -> None:
        self._room = room
        self._places = places

    def __getitem__(self, name: str) -> _T:
        module, _, attribute = self._places[name].partition(":")
        found: _T = getattr(import_module(f"{self._room}.{module}"), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
