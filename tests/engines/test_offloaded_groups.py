"""Cache groups with vLLM's CPU offloading tier below their pool: what is kept, found, loaded, and when it
comes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.simulation import RunOptions, simulate
from support.examples import examples
from support.offloaded_groups import (
    LOADED,
    PROMPT,
    SIZES,
    alone,
    core_store_of,
    end_copies,
    newcomer,
    one_full,
    replayed,
    serve,
    two_groups,
    with_tier,
)
from support.small_traces import trace_of, tree_traces

CHECKED = RunOptions(check="full")


@given(tree_traces(4, 15), *SIZES)
@examples(20)
def test_one_group_of_full_attention_is_no_group_at_all(trace, spare, chunks, policy, per):
    cpu = chunks * per
    # of a prompt of whole blocks a model without windows loads the last one too, and computes it again
    trace = replace(trace, input_tokens=trace.input_tokens - (trace.input_tokens % 4 == 0))
    trace = replace(trace, input_tokens=np.maximum(trace.input_tokens, 1))
    gpu = -(-int((trace.input_tokens + trace.output_tokens - 1).max()) // 4) + spare
    run = simulate(alone(one_full(4), gpu, cpu, policy, per), trace, options=CHECKED)
    row, block_bytes = replayed(trace, gpu, cpu, policy, per), 4 * 131_072
    assert run.requests["cached_gpu_tokens"].sum() == row["hit_tokens"]
    assert run.requests["cached_cpu_tokens"].sum() == row["loaded_tokens"]
    assert run.counters["evictions.gpu"] == row["evictions"]
    assert run.counters["evictions.cpu"] == row["evicted_chunks"] * per
    assert run.counters.get("edge.cpu->gpu.bytes", 0) == row["loaded_tokens"] // 4 * block_bytes
    assert run.counters.get("edge.gpu->cpu.bytes", 0) == row["stored_chunks"] * per * block_bytes


@given(tree_traces(4, 15), st.integers(1, 12))
@examples(10)
def test_over_a_large_tier_a_window_beyond_every_prompt_hits_what_full_attention_hits(trace, short):
    longest = int((trace.input_tokens + trace.output_tokens).max())
    gpu = 2 * (longest // 4 + 2)  # a request and little else
    hits = []
    for reach in (longest + 1, short):
        settings = alone(two_groups("sliding", reach, None), gpu, 100_000)
        hits.append(simulate(settings, trace, options=CHECKED).requests["cached_prefix_length_used"])
    everything = replace(trace, output_tokens=np.ones_like(trace.output_tokens))
    full = alone(one_full(4), 100_000, 1)
    assert (hits[0] == simulate(full, everything).requests["cached_prefix_length_used"]).all()
    assert (hits[1] <= hits[0]).all()


@pytest.mark.parametrize(("kind", "reach"), LOADED)
@pytest.mark.parametrize("pipelined", [True, False])
def test_a_load_is_what_its_groups_read_and_takes_the_time_of_its_layers(kind, reach, pipelined):
    """A prompt, another that evicts it, the first again: all of full attention and what the other group
    reads."""
    prompts = [[f"a{k}" for k in range(100)], [f"b{k}" for k in range(100)], [f"a{k}" for k in range(100)]]
    trace = trace_of(prompts, 4, [PROMPT] * 3, None, [2] * 3)
    trace = replace(trace, arrival_ns=np.arange(3, dtype=np.int64) * 10**12)
    gpu = 110 if kind == "linear" else 205  # a prompt and little else
    settings = with_tier(replace(two_groups(kind, reach), max_num_batched_tokens=1024), gpu, 1000)
    movement = replace(settings.movement, layer_pipelining=pipelined)
    (machine,) = settings.machines
    machine = replace(machine, replica=replace(machine.replica, max_num_batched_tokens=1024))
    run = simulate(replace(settings, movement=movement, machines=(machine,)), trace, options=CHECKED)
    assert run.requests["cached_cpu_tokens"].tolist() == [0, 0, 396]
    loaded, stored = LOADED[kind, reach]
    pages = 16 * (99 + loaded)
    assert run.counters["edge.gpu->cpu.bytes"] == 2 * 16 * (100 + stored) * 4 * 4096
    assert run.counters["edge.cpu->gpu.bytes"] == pages * 4 * 4096
    # 5 GB/s, or 1 us a page where that is more; 20 us of latency; a layer's share is rounded up
    per_layer = -(-max(-(-pages * 4 * 4096 // 5), pages * 1000) // 32)
    whole = 20_000 + 32 * per_layer
    first = 20_000 + -(-32 * per_layer * 99 // pages)
    waited = int(run.requests["fetch_cpu_ns"][2])
    if not pipelined:
        assert waited == whole
        return
    # the step stalls where a layer comes later than the ones before it are computed
    assert first <= waited < whole


def test_a_chunk_is_stored_without_blocks_that_left_its_window_if_none_of_them_is_kept():
    """Chunks of six blocks over steps of two: a block of a chunk may leave the window of five tokens and be taken
    by others before the chunk is whole. Only its last block is ever read again."""
    prompts = [[f"a{k}" for k in range(12)], [f"b{k}" for k in range(12)], [f"a{k}" for k in range(12)]]
    trace = trace_of(prompts, 4, [50] * 3, None, [2] * 3)
    trace = replace(trace, arrival_ns=np.arange(3, dtype=np.int64) * 10**12)
    stored = {}
    for gpu in (17, 20):
        settings = with_tier(
            replace(two_groups("sliding", 5, None), max_num_batched_tokens=8), gpu, 300, chunk_blocks=6
        )
        (machine,) = settings.machines
        machine = replace(machine, replica=replace(machine.replica, max_num_batched_tokens=8))
        run = simulate(replace(settings, machines=(machine,)), trace, options=CHECKED)
        assert (run.requests["cached_gpu_tokens"] + run.requests["cached_cpu_tokens"]).tolist() == [0, 0, 48]
        stored[gpu] = run.counters["edge.gpu->cpu.bytes"] // settings.cache.block_bytes
    assert stored[20] == 2 * 24
    assert stored[17] == 2 * 24 - 2


def test_a_refused_chunk_stays_though_a_block_that_its_window_does_not_keep_is_taken():
    """The tier has one chunk, the groups offer two; if the window's were dropped, the other one would be stored."""
    trace = trace_of([[f"a{k}" for k in range(4)], [f"b{k}" for k in range(5)]], 4, [17, 21], None, [3] * 2)
    settings = replace(two_groups("sliding", 9, None), max_num_batched_tokens=8)
    settings = with_tier(settings, 20, 4, chunk_blocks=4)
    (machine,) = settings.machines
    machine = replace(machine, replica=replace(machine.replica, max_num_batched_tokens=8))
    run = simulate(replace(settings, machines=(machine,)), trace, options=CHECKED)
    assert "edge.gpu->cpu.bytes" not in run.counters


@pytest.mark.parametrize("arrived", [False, True])
def test_admission_waits_for_blocks_that_a_copy_still_reads(arrived):
    """Of a pool of four blocks three are being copied down: who takes all waits, at once or bit by bit."""
    store = core_store_of(one_full(4), [["a", "b", "c"], ["d", "e", "f", "g"]], 4)
    store.release(serve(store, 0, 12), 0)
    [(move, *order)] = store.take_orders()
    assert order == [0, 1, 3, []]
    if arrived:
        store.finish_move(move)
    waits = [] if arrived else [move]
    at_once, _, _ = store.admit(newcomer(1, 16), 0)
    assert store.brought(at_once).freeing_moves == waits
    store.release(at_once, 0)
    bit_by_bit, _, _ = store.admit(newcomer(1, 16, step=4), 0)
    assert store.reserve_many([(bit_by_bit, 12)], 0) == waits


@pytest.mark.parametrize("second_ends_first", [True, False])
def test_what_a_request_used_of_the_tier_is_recent_when_it_ends(second_ends_first):
    """Two requests store three blocks each, which fill the tier; g replaces a block of the request that
    ended first."""
    rows = [["a", "b", "c"], ["d", "e", "f"], ["g"], ["a", "b", "c", "x"], ["d", "e", "f", "y"]]
    rows.append([f"h{k}" for k in range(9)])
    store = core_store_of(one_full(4), rows, 10, cpu=6)
    leases = [serve(store, request, 12) for request in (0, 1)]
    end_copies(store)
    for lease in reversed(leases) if second_ends_first else leases:
        store.release(lease, 0)
    store.release(serve(store, 2, 4), 0)
    end_copies(store)
    hog, _, _ = store.admit(newcomer(5, 36), 0)  # fills the pool, and offers nothing
    store.release(hog, 0)
    found = []
    for request in (3, 4):
        lease, hits, _ = store.admit(newcomer(request, 16), 0)
        found.append(hits)
        store.release(lease, 0)
    # the last block of a request's is the least recent of its own
    assert found == ([3, 2] if second_ends_first else [2, 3])


def test_what_has_been_offered_is_not_offered_again():
    """a is stored and leaves the tier for d and e; the next step of its request offers b alone."""
    store = core_store_of(one_full(4), [["a", "b", "c"], ["d", "e"]], 10, cpu=2)
    lease, _, _ = store.admit(newcomer(0, 12, step=4), 0)
    store.commit(lease, 1)
    store.step_computed([lease], 0)
    [(move, *order)] = store.take_orders()
    assert order == [0, 1, 1, []]
    store.finish_move(move)
    store.release(serve(store, 1, 8), 0)
    end_copies(store)
    assert store.eviction_counts(1).evicted_blocks == 1
    assert store.reserve_many([(lease, 4)], 0) == []
    store.commit(lease, 2)
    store.step_computed([lease], 0)
    assert [order[:3] for _, *order in store.take_orders()] == [[0, 1, 1]]


@pytest.mark.parametrize("free", [12, 13])
def test_a_state_in_the_pool_takes_no_block_when_a_later_state_is_loaded(free):
    """Four blocks and their state are in the pool, six more and a state in the tier, and one is new.

    Full attention holds the four, loads six and computes one; one state is loaded and one computed: 13.
    """
    prompt, blocks = [f"a{k}" for k in range(11)], 40
    rows = [
        prompt,
        [f"b{k}" for k in range(blocks - 1)],
        [*prompt[:4], "own"],
        [f"c{k}" for k in range(blocks - free)],  # its last block comes with a later step
        prompt,
    ]
    store = core_store_of(two_groups("linear", 0), rows, blocks)
    for request, tokens in ((0, 41), (1, 4 * (blocks - 1)), (2, 17)):
        store.release(serve(store, request, tokens), 0)
        end_copies(store)
    hog = store.admit(newcomer(3, 4 * len(rows[3])), 0)[0]
    capacity = store.occupancy(0)
    assert capacity.free_blocks + capacity.cached_blocks == free
    lease, hits, _ = store.admit(newcomer(4, 41), 0)
    store.check()
    if free < 13:
        assert lease is None
        store.release(hog, 0)
        lease, hits, _ = store.admit(newcomer(4, 41), 0)
    brought = store.brought(lease)
    assert (hits, brought.in_pool_blocks) == (10, 4)
    [(move, _)] = brought.loads
    assert store.blocks_of_move(move) == [6, 1]


def test_a_state_is_offered_alone_and_the_other_groups_blocks_together():
    """The tier has one block: of a prompt of three blocks the state is stored, the three of full attention are
    not."""
    store = core_store_of(two_groups("linear", 0), [["a", "b", "c"]], 20, cpu=1)
    serve(store, 0, 13)
    [(move, *_)] = store.take_orders()
    assert store.blocks_of_move(move) == [0, 1]


@pytest.mark.parametrize(("gpu", "stored"), [(100, [3, 3]), (9, [3, 2])])
def test_a_block_that_left_its_window_is_offered_again_until_it_is_allocated_again(gpu, stored):
    """b0 to b2 are refused while the copies of a run; then they are stored, b0 of the window with its block gone."""
    rows = [["a0", "a1"], ["b0", "b1", "b2"]]
    store = core_store_of(two_groups("sliding", 4, None), rows, gpu, cpu=6)
    serve(store, 0, 8)
    [(copy, *_)] = store.take_orders()
    lease, _, _ = store.admit(newcomer(1, 12, step=8), 0)
    store.commit(lease, 2)
    store.step_computed([lease], 0)
    assert store.take_orders() == []
    store.finish_move(copy)
    store.reserve_many([(lease, 4)], 0)
    store.commit(lease, 3)
    store.step_computed([lease], 0)
    [(move, *_)] = store.take_orders()
    assert store.blocks_of_move(move) == stored


def test_a_request_that_ends_first_frees_the_blocks_that_left_its_window():
    """Of four blocks a window of one block reads the last: the others are reused before all of full attention."""
    store = core_store_of(two_groups("sliding", 4, None), [["a", "b", "c", "d"]], 8)
    store.release(serve(store, 0, 16), 0)
    assert [key[0] for key in store.free_queue() if key is not None] == [1, 1, 1, 0, 0, 0, 0, 1]
