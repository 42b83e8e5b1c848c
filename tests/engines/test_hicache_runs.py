"""``tiers.cpu.semantics: hicache``: SGLang's default tree with HiCache's host tier and storage: runs without time."""

from dataclasses import replace

import numpy as np
from hicache_scenarios import CHECKED, WRITES, scenario
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest, StorageCapacity
from kvcache_sim.workload.toolbox.transforms import head
from support.examples import examples
from support.instant_runs import instant
from support.product.machines import StoreMaker
from support.small_traces import trace_of, tree_traces


@given(
    tree_traces(4, 20),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 40),
    st.integers(2, 160),
    #: Pages of a storage and the fewest tokens worth a prefetch; None: no storage.
    st.none() | st.tuples(st.none() | st.integers(1, 200), st.sampled_from([1, 4, 8])),
    st.sampled_from(["lru", "lfu", "fifo", "slru", "mru"]),
    st.sampled_from(list(WRITES)),
)
@examples(30)
def test_an_instant_run_gives_the_replays_integers(trace, page, spare, host, storage, policy, write):
    longest = int((trace.input_tokens + trace.output_tokens - 1).max())
    device, host = -(-longest // page) + 2 + spare // page, -(-host // page) + (storage is not None)
    # every copy ends before the next request, as in the replay
    trace = replace(trace, arrival_ns=np.arange(len(trace), dtype=np.int64) * 10**10)
    capacities, threshold = (
        ((device, host), 0) if storage is None else ((device, host, storage[0]), storage[1])
    )
    text = scenario(capacities, policy, write, page, "policy: wait", f"threshold: {threshold}")
    done = instant(text, trace, CHECKED)
    request = ReplayRequest(
        trace,
        page,
        device,
        outputs="computed",
        write_policy=WRITES[write],
        host_blocks=host,
        storage=None if storage is None else StorageCapacity(*storage),
    )
    replayed = REPLAYERS["sglang-unified"](request, policy)
    evicted = done.summary["cache"]["evictions"]
    assert done.run.requests["cached_gpu_tokens"].sum() == replayed["hit_tokens"]
    assert done.run.requests["cached_cpu_tokens"].sum() == replayed["loaded_tokens"]
    assert evicted["gpu"] * page == replayed["evicted_tokens"]
    assert evicted["cpu"] * page == replayed["host_evicted_tokens"]
    assert moved_tokens(done, "cpu->gpu") == replayed["loaded_tokens"]
    assert moved_tokens(done, "gpu->cpu") == replayed["written_tokens"]
    if storage is None:
        return
    assert done.run.counters.get("prefetched_blocks", 0) * page == replayed["prefetched_tokens"]
    assert moved_tokens(done, "disk->cpu") == replayed["prefetched_tokens"]
    # the run ends with the last request, whose pages are still in transit to the storage
    less = dict.fromkeys(("storage_evicted_tokens", "storage_written_tokens"), 0)
    if len(trace) > 1:
        less = REPLAYERS["sglang-unified"](replace(request, trace=head(trace, len(trace) - 1)), policy)
    lost = replayed["storage_evicted_tokens"]
    assert less["storage_evicted_tokens"] <= evicted["disk"] * page <= lost
    # a page evicted for others of its own write is not counted again
    sent = moved_tokens(done, "cpu->disk")
    assert lost or less["storage_written_tokens"] <= sent <= replayed["storage_written_tokens"]


def moved_tokens(done, edge: str) -> int:
    return done.run.counters.get(f"edge.{edge}.bytes", 0) // 131_072


def store_of(write: str):
    """Return an empty store for two requests with the same prompt of three pages and two tokens."""
    trace = trace_of(
        [["a", "b", "c", "x"], ["a", "b", "c", "y"]], input_tokens=[14, 14], output_tokens=[9, 9]
    )
    cache = CacheSettings(
        block_size_tokens=4, semantics="sglang", lower_semantics="hicache", lower_write=write
    )
    tiers = TierSettings("gpu", 40), TierSettings("cpu", 40)
    return StoreMaker(cache, trace).make(tiers, [False, False]).gpu


def admitted(store, request: int) -> int:
    """Admit a request and allocate blocks for its prompt."""
    _, ready = store.peek(request, 3)
    lease = store.acquire(request, ready)
    assert store.reserve(lease, 4 - ready, 0) == []
    return lease


def computed(store, *leases: int) -> None:
    """End a step that computed the prompts of these leases."""
    for lease in leases:
        if store.depth(lease) < 3:
            store.commit(lease, 3)
    store.step_computed(leases, 0)


def test_a_prompt_that_is_found_whole_is_a_use_when_its_step_has_ended():
    """Two uses write it to the host; the second counts before the request's end."""
    store = store_of("selective")
    first = admitted(store, 0)
    computed(store, first)
    store.release(first, 0)
    assert store.take_orders() == []
    second = admitted(store, 1)
    assert store.depth(second) == 3
    computed(store, second)
    [(_, source, target, pages, _)] = store.take_orders()
    assert (source, target, pages) == (0, 1, 3)


def test_a_prompt_that_two_requests_computed_at_once_is_kept_once():
    store = store_of("back")
    leases = [admitted(store, request) for request in (0, 1)]
    computed(store, *leases)
    assert store.merged_blocks == 3
    for lease in leases:
        store.release(lease, 0)
    assert store.occupancy(0).cached_blocks == 3
    assert store.merged_blocks == 3
