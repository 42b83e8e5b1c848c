"""The plug-ins of a run: how often each was called, and the wall time in its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.policies.plugins.uses import PluginUse
from kvcache_sim.units import NS_PER_S

FIGURES = (
    Figure("plugins.row.kind", "", "the kind of a policy that is not built in"),
    Figure("plugins.row.name", "", "its name, as in the scenario"),
    Figure("plugins.row.calls", "", "calls of it on all machines"),
    Figure("plugins.row.s", "s", "wall time in these calls"),
)


def summarize_plugins(plugins: Sequence[PluginUse]) -> dict[str, Any]:
    """Return ``plugins``, a row for each plug-in; nothing where a run has none."""
    if not plugins:
        return {}
    rows = [
        {"kind": use.kind, "name": use.name, "calls": use.calls, "s": use.ns / NS_PER_S} for use in plugins
    ]
    return {"plugins": rows}
