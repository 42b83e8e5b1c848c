"""Cost of reading one threshold, which runs before every simulation that has one."""

from __future__ import annotations

from kvcache_sim.metrics.thresholds import parse_threshold


def test_parse_threshold(benchmark):
    threshold = benchmark(parse_threshold, "ttft.p99 > 2s")
    assert threshold.amount == 2000.0
