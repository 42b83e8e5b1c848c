"""SGLang's own scheduler: the native against the reference on drawn scenarios, and what its settings do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.errors import KvsimError
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.serving.engine_scheduler.replica import EngineReplica
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import BLOCK, cluster
from support.recorded import recorded
from support.traces import random_trace
from tiered_scenario import load

replicas = st.builds(
    ReplicaSettings,
    scheduler=st.just("sglang"),
    max_num_batched_tokens=st.sampled_from([100, 256, 512, 2048]),
    max_num_seqs=st.sampled_from([1, 3, 8, 40]),
    schedule_policy=st.sampled_from(["fcfs", "lpm", "dfs-weight", "lof"]),
    max_prefill_tokens=st.sampled_from([150, 700, 16384]),
    enable_mixed_chunk=st.booleans(),
    schedule_conservativeness=st.sampled_from([0.1, 0.3, 1.0, 2.0]),
    step_overhead_ns=st.sampled_from([0, 3_000_000]),
    async_scheduling=st.sampled_from(["none", "length", "stop-token"]),
    client_offset_ns=st.sampled_from([0, 5_000_000]),
)
caches = st.builds(
    CacheSettings,
    block_size_tokens=st.sampled_from([BLOCK, BLOCK // 4, 1]),
    semantics=st.just("sglang"),
    policy=st.sampled_from(["lru", "lru", "lfu", "fifo", "mru", "filo", "slru"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
)


def with_room(replica, cache, tokens, machines=1):
    settings = cluster((tokens // cache.block_size_tokens,), machines)
    each = tuple(replace(machine, replica=replica) for machine in settings.machines)
    return replace(settings, cache=cache, machines=each)


@examples(60)
@given(
    replica=replicas,
    cache=caches,
    tokens=st.sampled_from([4_096, 6_400, 25_600]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 9),
)
def test_the_core_and_the_reference_tell_one_story(replica, cache, tokens, machines, seed):
    settings, trace = with_room(replica, cache, tokens, machines), random_trace(seed, requests=50, sessions=7)
    simulation, native = recorded(settings, trace, schedule=machines == 1)
    assert all(isinstance(one, NativeReplica) for one in simulation.replicas)
    stepped, plain = recorded(settings, trace, step_every_iteration=True, schedule=machines == 1)
    assert all(isinstance(one, EngineReplica) for one in stepped.replicas)
    assert native == plain
    if machines == 1:
        logs = [simulation.replicas[0].schedule(), stepped.replicas[0].schedule()]
        assert logs[0] == logs[1]


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "dfs-weight", "lof"])
@pytest.mark.parametrize("ahead", ["none", "length", "stop-token"])
def test_all_python_tells_the_same(policy, ahead):
    replica = ReplicaSettings(
        256, 8, scheduler="sglang", schedule_policy=policy, async_scheduling=ahead, enable_mixed_chunk=True
    )
    cache = CacheSettings(block_size_tokens=16, semantics="sglang")
    settings, trace = with_room(replica, cache, 4_096), random_trace(3, requests=40, sessions=5)
    _, native = recorded(settings, trace)
    _, plain = recorded(settings, trace, backend="python")
    assert native == plain


def run(trace, tokens=25_600, **changes):
    replica = ReplicaSettings(
        **{"max_num_batched_tokens": 512, "max_num_seqs": 8, "scheduler": "sglang", **changes}
    )
    cache = CacheSettings(block_size_tokens=16, semantics="sglang")
    return Simulation(with_room(replica, cache, tokens), trace, RunOptions(check="full")).run()


def test_the_longest_prefix_first_finds_more_than_the_order_of_arrival():
    trace = random_trace(2, requests=120, sessions=12)
    found = {
        policy: int(run(trace, 9_600, schedule_policy=policy).requests["cached_prefix_length_used"].sum())
        for policy in ("fcfs", "lpm", "dfs-weight")
    }
    assert min(found["lpm"], found["dfs-weight"]) > found["fcfs"]


def test_the_longest_answer_first():
    trace = random_trace(2, requests=60, sessions=6)
    once = replace(trace, arrival_ns=trace.arrival_ns * 0)
    rows = run(once, schedule_policy="lof", max_num_seqs=1).requests
    order = rows["finish_ns"].argsort()
    answers = rows["output_tokens"][order].tolist()
    assert answers == sorted(answers, reverse=True)


def test_what_is_reserved_of_answers_decides_how_many_are_retracted():
    trace = random_trace(5, requests=60, sessions=30)
    once = replace(trace, arrival_ns=trace.arrival_ns * 0, output_tokens=trace.output_tokens * 0 + 100)
    preempted = [
        run(once, 6_400, schedule_conservativeness=share, max_num_seqs=60).requests["preemptions"].sum()
        for share in (0.02, 100.0)
    ]
    assert preempted[0] > preempted[1]


def test_mixed_chunks_keep_answers_going():
    trace = random_trace(4, requests=80, sessions=9)
    apart, mixed = (run(trace, max_num_batched_tokens=128, enable_mixed_chunk=m) for m in (False, True))
    longest = [max(one.itl_ns.values_ns[one.itl_ns.counts > 0]) for one in (apart, mixed)]
    assert longest[1] < longest[0]


def test_the_tree_comes_with_the_scheduler():
    said = ["replica.scheduler=sglang", "replica.schedule_policy=lpm"]
    assert load_scenario(None, said).settings.cache.semantics == "sglang"


def test_machines_with_roles_have_kvsims_own_scheduler():
    """SGLang's scheduler hands nothing over, whatever says that a machine only prefills."""
    text = "cache: {semantics: sglang}\nreplica: {scheduler: sglang}\ntiers: {gpu: {capacity: 99 blocks}}\n"
    with pytest.raises(KvsimError, match="kvsim's own scheduler does that"):
        load("cluster.machines=2", "machines[0].role=prefill", text=text)
    settings = load("cluster.machines=2", text=text).settings
    machines = (replace(settings.machines[0], role="prefill"), settings.machines[1])
    with pytest.raises(KvsimError, match="SGLang's scheduler serves whole requests here"):
        simulate(replace(settings, machines=machines), random_trace(1, requests=3))
