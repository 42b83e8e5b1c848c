"""Whether pictures can be drawn here: the plotting libraries are an extra."""

from __future__ import annotations

import importlib.util

from kvcache_sim.errors import UsageError

_MODULES = ("altair", "vl_convert")
_INSTALL = "pip install 'kvcache-sim[report]'"


def can_plot() -> bool:
    """Return whether the plotting libraries are installed; none of them is imported."""
    return all(importlib.util.find_spec(module) is not None for module in _MODULES)


def require_plotting() -> None:
    """Raise ``UsageError`` naming the extra when the plotting libraries are not installed."""
    if not can_plot():
        raise UsageError("pictures need the 'report' extra", hint=_INSTALL)


def next_step(run: str) -> str:
    """Return what to type after a run, its directory as a shell reads it: a command that works here."""
    if can_plot():
        return f"next: kvsim report {run}"
    return f"next: kvsim explain {run}   (pictures: {_INSTALL})"
