"""Checks shared by runs over an engine's own lower tiers: loads take the time of their channels."""

from __future__ import annotations

from dataclasses import replace

from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import Trace


def assert_loads_take_time(settings: ClusterSettings, trace: Trace, tier: str, edge: str) -> None:
    """Check that loads over an edge wait longer on slow channels."""
    rates = (10**9, 10**12)
    wired = [{n: replace(c, bandwidth_bytes_per_s=r) for n, c in settings.channels.items()} for r in rates]
    slow, fast = (simulate(replace(settings, channels=channels), trace) for channels in wired)
    assert slow.counters[f"edge.{edge}.bytes"] > 0
    assert slow.requests[f"fetch_{tier}_ns"].sum() > fast.requests[f"fetch_{tier}_ns"].sum()
