"""vLLM's own scheduler over several KV cache groups: books of drawn schedules, one group as before, real rows."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import BLOCK
from support.examples import examples
from support.group_layouts import row_request
from support.group_runs import crowded, groups, layouts_of, settings_of
from support.product.machines import Newcomer, native_groups
from support.recorded import recorded
from support.schedule_book import check_books, plain_table, step_time
from support.schedules import replicas
from support.shared_files import shared
from support.small_traces import trace_of
from support.traces import random_trace

caches = st.builds(
    CacheSettings, enabled=st.sampled_from([True, True, True, False]), cache_output=st.booleans()
)


@examples(15)
@given(
    drawn=groups(),
    cache=caches,
    replica=replicas,
    blocks=st.sampled_from([60, 200, 900]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 9),
)
def test_the_books_of_a_drawn_schedule_balance(drawn, cache, replica, blocks, machines, seed):
    """``tests/engine_oracles/vllm_groups.py`` compares the groups' decisions with the real manager."""
    replica = replace(replica, client_offset_ns=0)
    settings = settings_of(drawn, cache, replica, blocks, machines)
    built = tuple(replace(machine, step_time=plain_table()) for machine in settings.machines)
    trace = (crowded if seed % 2 else random_trace)(seed, requests=30, sessions=7)
    simulation = Simulation(replace(settings, machines=built), trace, RunOptions(schedule=True, check="full"))
    check_books(simulation.run(), simulation.replicas, step_time(replica), replica.async_scheduling)


@examples(8)
@given(replica=replicas, blocks=st.sampled_from([70, 110, 400]), seed=st.integers(1, 9))
def test_one_full_group_gives_what_the_pool_of_one_group_gives(replica, blocks, seed):
    alone = KvLayout((KvGroup("full", BLOCK, 0, (0,)),), 1, 1)
    one = GroupSettings("one group", alone, replica.max_num_batched_tokens)
    trace = random_trace(seed, requests=40, sessions=7)
    grouped = settings_of(one, CacheSettings(), replica, blocks, 1)
    single = replace(grouped, cache=replace(grouped.cache, groups=None))
    (first, said), (second, before) = (recorded(s, trace, schedule=True) for s in (grouped, single))
    assert first.replicas[0].schedule() == second.replicas[0].schedule()
    events, results, counters, end_ns = said.pop("digests")
    of_groups = {name for name in counters if name.startswith("groups.")}
    assert of_groups, "a pool of groups has counters by group in addition to a pool's"
    assert [
        events,
        results,
        {name: counters[name] for name in counters.keys() - of_groups},
        end_ns,
    ] == before.pop("digests")
    assert said == before


def test_requests_one_after_another_meet_the_rows_of_the_real_manager():
    """One running request at a time is the rows' protocol without overlap: hits and evictions to the integer."""
    rows = json.loads(shared("oracles/vllm_hybrid_lcg.json").read_text())
    met = 0
    for row in rows:
        if row["window"] or row["rejected_requests"] or row["hash_block_size"] % 16:
            continue
        request = row_request(row)
        assert request.groups is not None
        assert request.trace.input_tokens.max() <= 4096  # a chunk takes all of any prompt either way
        step = min(request.groups.max_num_batched_tokens, 4096)
        drawn = replace(request.groups, max_num_batched_tokens=step)
        trace = replace(request.trace, arrival_ns=np.arange(len(request.trace), dtype=np.int64))
        replica = ReplicaSettings(max_num_seqs=1, scheduler="vllm")
        settings = settings_of(drawn, CacheSettings(), replica, row["capacity_blocks"], 1)
        run = Simulation(settings, trace, RunOptions(check="full")).run()
        hits = run.requests["cached_prefix_length_used"].tolist()
        digest = hashlib.sha256("\n".join(map(str, hits)).encode()).hexdigest()
        assert digest == row["per_request_hit_tokens_sha256"], row["model"]
        assert run.counters["evictions.gpu"] == row["evictions"], row["model"]
        met += 1
    assert met >= 20


def test_a_state_computed_in_a_step_is_reused_from_the_next_step():
    """Two equal prompts at once: full attention hits within the step, a state is waited for by a step."""
    prompt = [f"b{k}" for k in range(20)]
    twice = trace_of([prompt, prompt], 16, [320, 320], None, [3, 3])
    replica = ReplicaSettings(max_num_seqs=4, scheduler="vllm")
    found = {}
    for kind, reach in (("linear", 0), ("chunked", 1 << 14)):
        drawn = replace(layouts_of(kind, reach), max_num_batched_tokens=4096)
        settings = settings_of(drawn, CacheSettings(), replica, 5000, 1)
        simulation = Simulation(settings, twice, RunOptions(schedule=True))
        simulation.run()
        found[kind] = [step for step, _, _ in simulation.replicas[0].schedule().admissions]
    assert found["chunked"] == [0, 0]
    assert found["linear"][0] == 0 < found["linear"][1]


@pytest.mark.parametrize(
    ("enabled", "chunks", "blocks"), [(True, [4896, 104, 0], 12), (False, [5000, 0], 11)]
)
def test_without_caching_a_prompt_is_not_cut_and_holds_one_state(enabled, chunks, blocks):
    """Blocks of 544: with caching a state is kept at 4,896 tokens, without it a request has one state alone."""
    groups = tuple(KvGroup(kind, 544, 0, (0,)) for kind in ("linear", "full"))
    drawn = GroupSettings("states", KvLayout(groups, 1, 1), 8192, max_model_len=6000)
    trace = trace_of([range(10)], 512, [5000], None, [2])
    replica = ReplicaSettings(max_num_seqs=4, scheduler="vllm")
    settings = settings_of(drawn, CacheSettings(enabled=enabled), replica, blocks, 1)
    machine = replace(settings.machines[0], step_time=load_step_time("linear:base=5ms,token=20us"))
    simulation = Simulation(
        replace(settings, machines=(machine,)), trace, RunOptions(schedule=True, check="full")
    )
    simulation.run()
    (served,) = simulation.replicas
    assert [tokens for _, tokens, *_ in served.schedule().steps] == chunks
    assert served.store.most_blocks(5001, 1) == blocks


def test_a_resumed_request_lacks_its_last_token_alone_without_a_cut():
    """A chunk that leaves only the last known token ends the prefill: it is not cut to a block."""
    states = GroupSettings("states", KvLayout((KvGroup("linear", 10, 0, (0,)),), 1, 1), 64, None)
    trace = trace_of([range(5), range(5)], 10, [50, 50])
    keys = native_groups(states.layout, trace, answers_shared=True)
    for prompt, chunk in ((20, 2), (33, 0)):
        store = _core.GroupStore(keys, states.limits, 20, states.rules)
        lease, _, end = store.admit(Newcomer(0, prompt, 33, 0, 32, 64), 0)
        assert (end, store.chunk(lease, 30, 33, 2)) == (30, chunk)
