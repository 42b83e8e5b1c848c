"""Loads from engines' own tiers below their caches take the time of their channels."""

from dataclasses import replace

import pytest
from kvcache_sim.simulation import simulate
from support.clusters import cluster
from support.traces import random_trace


@pytest.mark.parametrize(
    ("engine", "above", "sizes", "edge"),
    [
        ("hicache", "sglang", (60, 400), "cpu->gpu"),
        ("vllm-offload", "vllm", (60, 400), "cpu->gpu"),
        ("lmcache", "vllm", (60, 40, 400), "disk->cpu"),
    ],
)
def test_loads_take_the_time_of_their_channel(engine, above, sizes, edge):
    settings, runs = cluster(sizes), []
    lower = {"lower_semantics": engine, **({"lower_write": "through"} if engine == "hicache" else {})}
    settings = replace(settings, cache=replace(settings.cache, semantics=above, **lower))
    for rate in (10**9, 10**12):
        channels = {name: replace(c, bandwidth_bytes_per_s=rate) for name, c in settings.channels.items()}
        runs.append(simulate(replace(settings, channels=channels), random_trace(3, 60, 6)))
    slow, fast = (run.requests[f"fetch_{edge.split('->')[0]}_ns"].sum() for run in runs)
    assert runs[0].counters[f"edge.{edge}.bytes"] > 0
    assert slow > fast
