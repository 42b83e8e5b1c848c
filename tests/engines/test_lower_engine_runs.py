"""Engines' own tiers below their caches in timed runs: whole blocks move, and loads take the time of their channels."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.simulation import simulate
from support.clusters import cluster
from support.drawn_settings import kinds, replicas
from support.examples import examples
from support.recorded import recorded
from support.traces import random_trace

TREE = ("lru", "lfu", "fifo", "slru", "mru")
#: By semantics of the CPU tier: semantics of the cache above, policies of the tier, and its write policies.
ENGINES = {
    "hicache": ("sglang", TREE, ("through", "back", "selective")),
    "vllm-offload": ("vllm", ("lru", "arc"), (None,)),
    "lmcache": ("vllm", ("lru", "lfu", "fifo", "mru"), (None,)),
    "lmcache-server": ("vllm", ("lru", "arc"), (None,)),
}
DISKS = {"hicache": [0], "vllm-offload": [0], "lmcache": [30, 400], "lmcache-server": [0, 30, 400]}


def of_engine(engine: str, sizes, machines: int = 1, policy: str = "lru", write=None):
    """Return machines with tiers of an engine; 0 disk blocks: no disk."""
    sizes = [size for size in sizes if size]
    settings = cluster(tuple(sizes), machines)
    semantics = ENGINES[engine][0]
    of_gpu = policy if semantics == "sglang" else "lru"
    policies = (of_gpu, policy, "lru")
    tiers = [TierSettings(*own) for own in zip(("gpu", "cpu", "disk"), sizes, policies, strict=False)]
    written = {} if write is None else {"lower_write": write}
    cache = replace(settings.cache, semantics=semantics, lower_semantics=engine, policy=of_gpu, **written)
    built = tuple(replace(machine, tiers=tuple(tiers)) for machine in settings.machines)
    return replace(settings, cache=cache, machines=built)


@pytest.mark.parametrize("engine", ENGINES)
@examples(20)
@given(data=st.data())
def test_drawn_runs_keep_every_invariant(engine, data):
    """A run with every check and record equals a run with lookahead and without them."""
    _, policies, writes = ENGINES[engine]
    gpu, cpu = data.draw(st.sampled_from([(60, 30), (70, 200), (110, 60), (110, 6), (400, 900)]))
    settings = of_engine(
        engine,
        (gpu, cpu, data.draw(st.sampled_from(DISKS[engine]))),
        data.draw(st.sampled_from([1, 1, 2])),
        data.draw(st.sampled_from(policies)),
        data.draw(st.sampled_from(writes)),
    )
    kind, replica = data.draw(st.one_of(st.just({}), kinds)), data.draw(replicas)
    settings = replace(
        settings,
        movement=replace(settings.movement, layer_pipelining=data.draw(st.booleans())),
        machines=tuple(replace(machine, replica=replica) for machine in settings.machines),
        channels={name: replace(one, **kind) for name, one in settings.channels.items()},
    )
    trace = random_trace(data.draw(st.integers(1, 99)), 40, 7)
    _, checked = recorded(settings, trace)
    run = simulate(settings, trace)
    assert [run.digest_events, run.digest_results, run.counters, run.end_ns] == checked["digests"]
    moved = {
        edge: run.counters.get(f"edge.{edge}.bytes", 0) for edge in ("disk->cpu", "cpu->gpu", "gpu->cpu")
    }
    assert not any(sent % settings.cache.block_bytes for sent in moved.values())
    # what comes from the disk is copied on to the GPU
    assert moved["disk->cpu"] <= moved["cpu->gpu"]
    # a load that several requests wait for uses its channel once; loads after a preemption count nowhere
    found = run.requests["cached_cpu_tokens"].sum()
    if not moved["disk->cpu"]:
        loaded = moved["cpu->gpu"]
        assert loaded > 0 if found else loaded == 0 or run.requests["preemptions"].sum()


@pytest.mark.parametrize(
    ("engine", "sizes", "tier"),
    [("hicache", (60, 400), "cpu"), ("vllm-offload", (60, 400), "cpu"), ("lmcache", (60, 40, 400), "disk")],
)
def test_loads_take_the_time_of_their_channel(engine, sizes, tier):
    settings, trace = (
        of_engine(engine, sizes, write="through" if engine == "hicache" else None),
        random_trace(3, 60, 6),
    )
    edge, runs = {"cpu": "cpu->gpu", "disk": "disk->cpu"}[tier], []
    for rate in (10**9, 10**12):
        channels = {name: replace(c, bandwidth_bytes_per_s=rate) for name, c in settings.channels.items()}
        runs.append(simulate(replace(settings, channels=channels), trace))
    slow, fast = (run.requests[f"fetch_{tier}_ns"].sum() for run in runs)
    assert runs[0].counters[f"edge.{edge}.bytes"] > 0
    assert slow > fast
