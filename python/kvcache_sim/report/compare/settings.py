"""Which settings differ between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.metrics.names import flatten

_LABELS = ("name",)


def differing_settings(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, tuple[object, ...]]:
    """Return dotted setting → its value in each scenario (None: not set), for those that are not all equal.

    Labels are left out. Lists compare whole. A channel that is not everywhere is one row, of its bandwidth.
    """
    flat = [flatten(scenario) for scenario in scenarios]
    names = dict.fromkeys(name for scenario in flat for name in scenario if name not in _LABELS)
    table = {name: tuple(scenario.get(name) for scenario in flat) for name in names}
    differing = {name: values for name, values in table.items() if any(v != values[0] for v in values)}
    return {name: values for name, values in differing.items() if not _of_lone_channel(name, scenarios)}


def _of_lone_channel(name: str, scenarios: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting is one of a channel that some scenario lacks, and not its bandwidth."""
    section, _, rest = name.partition(".")
    channel, _, key = rest.partition(".")
    lacking = any(channel not in (scenario.get("channels") or {}) for scenario in scenarios)
    return section == "channels" and lacking and key != "bandwidth"
