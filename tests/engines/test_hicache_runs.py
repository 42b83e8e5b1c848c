"""``tiers.cpu.semantics: hicache``: SGLang's default tree with HiCache's host tier, in runs with and without
time."""

from dataclasses import replace

from hicache_scenarios import CHECKED, WRITES, scenario
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from support.examples import examples
from support.instant_runs import instant
from support.small_traces import trace_of, tree_traces


@given(
    tree_traces(4, 20),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 40),
    st.integers(1, 160),
    st.sampled_from(["lru", "lfu", "fifo", "slru", "mru"]),
    st.sampled_from(list(WRITES)),
)
@examples(15)
def test_an_instant_run_gives_the_replays_integers(trace, page, spare, host, policy, write):
    longest = int((trace.input_tokens + trace.output_tokens - 1).max())
    device, host = -(-longest // page) + 2 + spare // page, -(-host // page)
    # every write ends before the next request, as in the replay
    trace = replace(trace, arrival_ns=trace.arrival_ns.cumsum() * 10**9)
    done = instant(scenario(device, host, policy, write, page), trace, CHECKED)
    request = ReplayRequest(
        trace, page, device, outputs="computed", write_policy=WRITES[write], host_blocks=host
    )
    replayed = REPLAYERS["sglang-unified"](request, policy)
    evicted, moved = done.summary["cache"]["evictions"], done.run.counters
    token_bytes = 131_072
    assert done.run.requests["cached_gpu_tokens"].sum() == replayed["hit_tokens"]
    assert done.run.requests["cached_cpu_tokens"].sum() == replayed["loaded_tokens"]
    assert evicted["gpu"] * page == replayed["evicted_tokens"]
    assert evicted["cpu"] * page == replayed["host_evicted_tokens"]
    assert moved.get("edge.cpu->gpu.bytes", 0) == replayed["loaded_tokens"] * token_bytes
    assert moved.get("edge.gpu->cpu.bytes", 0) == replayed["written_tokens"] * token_bytes


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
