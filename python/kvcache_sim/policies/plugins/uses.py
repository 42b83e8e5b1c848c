"""Calls of a run's plug-ins, and the time in them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.base.values import Struct
from kvcache_sim.policies.plugins.contract import PolicyViolation, violation
from kvcache_sim.policies.plugins.watchdog import Watchdog


class PluginUse(Struct, eq=False):
    """Calls of one plug-in on one machine, and the wall time spent in them, in ns."""

    kind: str
    name: str
    calls: int = 0
    ns: int = 0


class _Noted(threading.local):
    """The uses of the simulation that is being built on this thread."""

    uses: list[PluginUse] | None = None


_noted = _Noted()


class WatchedCalls:
    """Calls of one plug-in: watched, counted and timed; an exception becomes a violation of the contract."""

    def __init__(self, kind: str, name: str, dog: Watchdog) -> None:
        self._name, self._dog, self._use = name, dog, note_use(kind, name)

    def __call__(self, hook: Callable[..., Any], now_ns: int, *arguments: Any) -> Any:
        """Return a hook's answer. Raises PolicyViolation if the hook raises or does not return in time."""
        dog, use = self._dog, self._use
        outer, dog.asked = dog.asked, self._name
        dog.calls += 1
        started_ns = perf_counter_ns()
        try:
            return hook(*arguments)
        except (PolicyViolation, KvsimError):
            raise
        except (Exception, SystemExit) as error:
            raise violation(self._name, f"raised {type(error).__name__}: {error}", now_ns) from None
        finally:
            use.ns += perf_counter_ns() - started_ns
            use.calls += 1
            dog.asked = outer


def begin_uses() -> list[PluginUse]:
    """Return a list that collects the use of each plug-in created on this thread from now on."""
    _noted.uses = []
    return _noted.uses


def note_use(kind: str, name: str) -> PluginUse:
    """Return the record of a plug-in's calls."""
    use = PluginUse(kind, name)
    if _noted.uses is not None:
        _noted.uses.append(use)
    return use


def summed(uses: list[PluginUse]) -> tuple[PluginUse, ...]:
    """Return the uses of all machines by kind and name, in order of creation."""
    totals: dict[tuple[str, str], PluginUse] = {}
    for use in uses:
        total = totals.setdefault((use.kind, use.name), PluginUse(use.kind, use.name))
        total.calls += use.calls
        total.ns += use.ns
    return tuple(totals.values())
