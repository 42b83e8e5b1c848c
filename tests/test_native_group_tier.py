"""Cache groups with a tier below, natively: the core tells the same story as the classes in Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.drawn_settings import kinds
from support.traces import random_trace
from test_group_stores import crowded, groups
from test_offloaded_groups import alone, one_full, two_groups, with_tier
from test_tiered_groups import of_tree

WRITES = st.sampled_from(["engine", "back", "through"])


def ruled(settings, writes: str):
    """The same machines by vLLM's rules, or by the tree's whose tier is written so."""
    return settings if writes == "engine" else of_tree(settings, writes)


#: The core, single steps over its stores, and the reference.
WAYS = {
    "core": RunOptions(check="full"),
    "stepped": RunOptions(step_every_iteration=True),
    "reference": RunOptions(check="full", backend="python"),
}


def agree(settings, trace):
    """Check that the core, single steps and the reference tell one story, each passing its own check."""
    told = []
    for way, options in WAYS.items():
        simulation = Simulation(settings, trace, options)
        own = all(isinstance(replica.store, _core.GroupStore) for replica in simulation.replicas)
        assert own == (way != "reference")
        served = all(isinstance(replica, NativeReplica) for replica in simulation.replicas)
        assert served == (way == "core")
        run = simulation.run()
        columns = {name: list(column) for name, column in run.requests.items()}
        told.append([run.digest_events, run.digest_results, run.counters, run.end_ns, columns])
        counted = [replica.store.by_group() for replica in simulation.replicas]
        told[-1].append((counted, [replica.store.junctions() for replica in simulation.replicas]))
    assert told[0] == told[1] == told[2]
    ahead = Simulation(settings, trace, RunOptions()).run()
    assert [ahead.digest_events, ahead.digest_results, ahead.counters, ahead.end_ns] == told[0][:4]


@examples(30)
@given(
    drawn=groups(),
    gpu=st.sampled_from([60, 90, 200]),
    cpu=st.sampled_from([5, 20, 100, 300]),
    policy=st.sampled_from(["lru", "arc"]),
    writes=WRITES,
    machines=st.integers(1, 2),
    ends=st.sampled_from(["none", "length", "stop-token"]),
    pipelined=st.booleans(),
    kind=st.one_of(st.just({}), st.just({}), kinds),
    closed_loop=st.booleans(),
    seed=st.integers(1, 10**6),
)
def test_drawn_groups_above_a_tier_tell_one_story(
    drawn, gpu, cpu, policy, writes, machines, ends, pipelined, kind, closed_loop, seed
):
    trace = (crowded if seed % 2 else random_trace)(seed, requests=20, sessions=4)
    settings = ruled(with_tier(drawn, gpu, cpu, "lru" if writes != "engine" else policy, machines), writes)
    built = tuple(
        replace(machine, replica=replace(machine.replica, async_scheduling=ends))
        for machine in settings.machines
    )
    movement = replace(settings.movement, layer_pipelining=pipelined)
    channels = {name: replace(one, **kind) for name, one in settings.channels.items()}
    if closed_loop:
        trace = replace(trace, think_ns=np.where(trace.turn > 0, 10**8 * (seed % 3), -1))
    agree(replace(settings, machines=built, movement=movement, channels=channels), trace)


@examples(15)
@given(
    kind=st.sampled_from(["one", "sliding", "linear", "chunked"]),
    gpu=st.sampled_from([40, 70]),
    cpu=st.sampled_from([10, 60, 400]),
    writes=WRITES,
    seed=st.integers(1, 10**6),
)
def test_a_request_at_a_time_decides_alike(kind, gpu, cpu, writes, seed):
    drawn = one_full(16) if kind == "one" else two_groups(kind, 0 if kind == "linear" else 48, None, 16)
    trace = random_trace(seed, requests=25, sessions=4)
    agree(ruled(alone(drawn, gpu, cpu), writes), trace)
