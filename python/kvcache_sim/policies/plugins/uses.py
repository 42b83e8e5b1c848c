"""Calls of a run's plug-ins, and the time in them."""

from __future__ import annotations

import threading

from msgspec import Struct


class PluginUse(Struct, eq=False):
    """Calls of one plug-in on one machine, and the wall time in them, in ns."""

    kind: str
    name: str
    calls: int = 0
    ns: int = 0


class _Noted(threading.local):
    """The uses of the simulation that is built on this thread."""

    uses: list[PluginUse] | None = None


_noted = _Noted()


def begin_uses() -> list[PluginUse]:
    """Return a list to which the use of each plug-in made from now on on this thread is added."""
    _noted.uses = []
    return _noted.uses


def note_use(kind: str, name: str) -> PluginUse:
    """Return the record of a plug-in's calls."""
    use = PluginUse(kind, name)
    if _noted.uses is not None:
        _noted.uses.append(use)
    return use


def summed(uses: list[PluginUse]) -> tuple[PluginUse, ...]:
    """Return the uses of all machines by kind and name, in the order in which they were made."""
    totals: dict[tuple[str, str], PluginUse] = {}
    for use in uses:
        total = totals.setdefault((use.kind, use.name), PluginUse(use.kind, use.name))
        total.calls += use.calls
        total.ns += use.ns
    return tuple(totals.values())
