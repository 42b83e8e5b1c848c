"""A tree of cache groups with a tier below: writes, the states that a prompt continues from, and loads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import RunOptions, simulate
from support.examples import examples
from support.offloaded_groups import (
    LOADED,
    PROMPT,
    alone,
    core_store_of,
    end_copies,
    newcomer,
    one_full,
    serve,
    two_groups,
    with_tier,
)
from support.small_traces import trace_of, tree_traces

CHECKED = RunOptions(check="full")
WRITES = st.sampled_from(["back", "through"])


def of_tree(settings, write: str):
    """Return the same machines under the tree's rules, whose tier is written back or through."""
    drawn = replace(settings.cache.groups, rules="tree")
    cache = replace(
        settings.cache, semantics="tree", groups=drawn, lower_semantics="groups", lower_write=write
    )
    return replace(settings, cache=cache)


def no_groups(settings, write: str):
    """Return the same machines with the tree without groups."""
    cache = replace(settings.cache, groups=None, semantics="tree", lower_semantics=None)
    movement = MovementSettings(write={**MovementSettings().write, "gpu": write})
    return replace(settings, cache=cache, movement=movement)


@given(tree_traces(4, 20), st.integers(0, 12), WRITES)
@examples(20)
def test_one_full_group_over_a_large_tier_is_the_tree_without_groups(trace, spare, write):
    gpu = -(-int((trace.input_tokens + trace.output_tokens).max()) // 4) + spare
    settings = of_tree(alone(one_full(4), gpu, 100_000), write)
    settings = replace(settings, cache=replace(settings.cache, cache_output=False))
    runs = [simulate(s, trace, options=CHECKED) for s in (settings, no_groups(settings, write))]
    for column in ("cached_gpu_tokens", "cached_cpu_tokens"):
        assert runs[0].requests[column].tolist() == runs[1].requests[column].tolist(), column
    for name in ("evictions.gpu", "edge.cpu->gpu.bytes", "edge.gpu->cpu.bytes"):
        assert runs[0].counters.get(name, 0) == runs[1].counters.get(name, 0), name


@given(tree_traces(4, 15), st.integers(1, 12), WRITES)
@examples(10)
def test_over_a_large_tier_a_window_beyond_every_prompt_hits_what_full_attention_hits(trace, short, write):
    longest = int((trace.input_tokens + trace.output_tokens).max())
    gpu = 2 * (longest // 4 + 2)  # a request and little else
    hits = []
    for reach in (longest + 1, short):
        settings = of_tree(alone(two_groups("sliding", reach, None), gpu, 100_000), write)
        hits.append(simulate(settings, trace, options=CHECKED).requests["cached_prefix_length_used"])
    everything = replace(trace, output_tokens=np.ones_like(trace.output_tokens))
    full = of_tree(alone(one_full(4), 100_000, 1), write)
    if (trace.output_tokens == 1).all():
        assert (hits[0] == simulate(full, everything).requests["cached_prefix_length_used"]).all()
    assert (hits[0] >= simulate(full, everything).requests["cached_prefix_length_used"]).all()
    assert (hits[1] <= hits[0]).all()


@pytest.mark.parametrize(("kind", "reach"), LOADED)
@pytest.mark.parametrize("write", ["back", "through"])
def test_a_load_is_what_its_groups_read(kind, reach, write):
    """A prompt, two that evict it, the first again: all of full attention and what the other group reads."""
    prompts = [[f"{name}{k}" for k in range(100)] for name in "abca"]
    trace = trace_of(prompts, 4, [PROMPT] * 4, None, [2] * 4)
    trace = replace(trace, arrival_ns=np.arange(4, dtype=np.int64) * 10**12)
    gpu = 110 if kind == "linear" else 205  # a prompt and little else
    drawn = replace(two_groups(kind, reach), max_num_batched_tokens=1024)
    settings = of_tree(with_tier(drawn, gpu, 1000), write)
    (machine,) = settings.machines
    machine = replace(machine, replica=replace(machine.replica, max_num_batched_tokens=1024))
    run = simulate(replace(settings, machines=(machine,)), trace, options=CHECKED)
    loaded, stored = LOADED[kind, reach]
    assert run.requests["cached_cpu_tokens"].tolist() == [0, 0, 0, 396]
    assert run.counters["edge.cpu->gpu.bytes"] == (99 + loaded) * 16 * 4 * 4096
    if write == "through":
        assert run.counters["edge.gpu->cpu.bytes"] == 3 * (100 + stored) * 16 * 4 * 4096


def store_of(
    drawn: GroupSettings, rows: list[list], gpu: int, cpu: int, write: str = "back"
) -> _core.GroupStore:
    """Return a machine's store for requests of blocks of 4 tokens, which writes down its victims, or all
    blocks."""
    return core_store_of(replace(drawn, rules="tree"), rows, gpu, cpu, write)


def test_admission_waits_for_blocks_that_are_written_down():
    """Of six blocks three are kept; five new ones need two of them, which go down last to first."""
    rows = [["a", "b", "c"], [f"d{k}" for k in range(5)], ["a", "b", "c", "e"]]
    store = store_of(one_full(4), rows, 6, 100)
    store.release(serve(store, 0, 12), 0)
    assert store.take_orders() == []
    lease = serve(store, 1, 20)
    [(move, *order)] = store.take_orders()
    assert order == [0, 1, 2, []]
    assert store.brought(lease).freeing_moves == [move]
    assert store.occupancy(1).in_flight_blocks == 2
    store.finish_move(move)
    store.release(lease, 0)
    store.check()
    # one block is in the pool still, two come up; what goes down for them are three of the five
    lease, hits, _ = store.admit(newcomer(2, 16), 0)
    brought = store.brought(lease)
    assert (hits, brought.in_pool_blocks) == (3, 1)
    [(load, _)] = brought.loads
    orders = {move: order for move, *order in store.take_orders()}
    assert orders[load][:3] == [1, 0, 2]
    assert sum(order[2] for order in orders.values() if order[0] == 0) == 3
    store.check()


def test_a_tier_of_one_block_keeps_the_last_that_came():
    rows = [["a", "b", "c"], [f"d{k}" for k in range(6)], ["a", "b", "c", "e"]]
    store = store_of(one_full(4), rows, 6, 1)
    store.release(serve(store, 0, 12), 0)
    store.release(serve(store, 1, 24), 0)
    end_copies(store)
    assert (store.occupancy(1).cached_blocks, store.eviction_counts(1).evicted_blocks) == (1, 0)
    lease, hits, _ = store.admit(newcomer(2, 16), 0)
    assert (hits, store.brought(lease).in_pool_blocks) == (1, 0), "a, which left last"
    store.check()


def test_blocks_to_be_loaded_are_not_evicted_for_blocks_that_leave():
    """Two blocks of three in the tier are loaded; of the three that leave for them one fits in the tier."""
    rows = [["a", "b", "c"], [f"d{k}" for k in range(5)], ["a", "b", "c", "e"]]
    store = store_of(one_full(4), rows, 6, 3)
    for request, tokens in ((0, 12), (1, 20)):
        store.release(serve(store, request, tokens), 0)
        end_copies(store)
    store.admit(newcomer(2, 16), 0)
    assert [order[:3] for _, *order in store.take_orders()] == [[0, 1, 1], [1, 0, 2]]
    assert (store.occupancy(1).held_blocks, store.occupancy(1).in_flight_blocks) == (2, 1)
    store.check()


def test_what_is_being_loaded_is_found_in_the_pool_and_loaded_once():
    """a, b and c are loaded for one request; another request continues from them and waits for the same
    load."""
    rows = [["a", "b", "c"], [f"d{k}" for k in range(12)], ["a", "b", "c", "e"], ["a", "b", "c", "f"]]
    store = store_of(one_full(4), rows, 14, 100)
    for request, tokens in ((0, 12), (1, 48)):
        store.release(serve(store, request, tokens), 0)
        end_copies(store)
    first, second = (store.admit(newcomer(request, 16), 0)[0] for request in (2, 3))
    loads = [move for move, source, *_ in store.take_orders() if source == 1]
    assert len(loads) == 1
    assert [store.brought(lease).loads for lease in (first, second)] == [[(loads[0], 1)]] * 2
    assert store.occupancy(0).in_flight_blocks == store.blocks_of_move(loads[0])[0]
    store.check()


def test_a_block_that_still_goes_down_is_loaded_when_it_is_there():
    """c and b, then a are being written down; their blocks went to d and then to f, so only the load waits
    for them."""
    rows = [["a", "b", "c"], [f"d{k}" for k in range(7)], ["f", "g", "h"], ["a", "b", "c", "e"]]
    store = store_of(one_full(4), rows, 8, 100)
    for request, tokens in ((0, 12), (1, 28), (2, 12)):
        store.release(serve(store, request, tokens), 0)
    (first, *_), (second, *_) = store.take_orders()
    lease, _, _ = store.admit(newcomer(3, 16), 0)
    (own, *_), (_, *order) = store.take_orders()
    assert store.brought(lease).freeing_moves == [own]
    assert order == [1, 0, 3, [first, second, own]]
    store.check()


SCENARIO = """
workload: {kind: conversational, requests: 20}
model: gpt-oss-120b
cache: {layer_groups: by-kind, block_size: 64}
tiers: {gpu: {capacity: 4GiB}, cpu: {capacity: 8GiB}}
"""


def test_a_tier_below_a_tree_of_groups_keeps_groups():
    settings = scenario_from_text(SCENARIO, "s.yaml", Path.cwd()).settings
    assert (settings.cache.lower_semantics, settings.cache.groups.rules) == ("groups", "tree")
    assert settings.machines[0].tiers[1].capacity_blocks == (8 << 30) // settings.cache.block_bytes
