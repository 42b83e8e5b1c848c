"""``tiers.cpu.semantics: hicache``: SGLang's default tree with HiCache's host tier, in runs with and without
time."""

from dataclasses import replace

from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.simulation import simulate
from lower_engine_runs import assert_loads_take_time
from small_traces import trace_of, tree_traces
from support.clusters import cluster
from support.drawn_settings import kinds, replicas
from support.hicache_scenarios import CHECKED, WRITES, scenario
from support.instant_runs import instant
from support.recorded import recorded
from support.traces import random_trace


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


def with_host(gpu: int, cpu: int, machines: int = 1, write: str = "through"):
    settings = cluster((gpu, cpu), machines)
    cache = replace(settings.cache, semantics="sglang", lower_semantics="hicache", lower_write=write)
    tiers = (TierSettings("gpu", gpu), TierSettings("cpu", cpu))
    return replace(
        settings, cache=cache, machines=tuple(replace(machine, tiers=tiers) for machine in settings.machines)
    )


def check_moved(run, block_bytes: int) -> None:
    """Check that whole blocks are loaded where requests found some below, and there alone."""
    loaded = run.counters.get("edge.cpu->gpu.bytes", 0)
    assert loaded % block_bytes == 0
    # a load that several requests wait for uses its channel once; loads after a preemption count nowhere
    found = run.requests["cached_cpu_tokens"].sum()
    assert loaded > 0 if found else loaded == 0 or run.requests["preemptions"].sum()


@examples(40)
@given(
    replica=replicas,
    capacities=st.sampled_from([(60, 30), (70, 200), (110, 60), (110, 1), (400, 900)]),
    policy=st.sampled_from(["lru", "lfu", "fifo", "slru", "mru"]),
    write=st.sampled_from(list(WRITES)),
    machines=st.sampled_from([1, 1, 2]),
    kind=st.one_of(st.just({}), kinds),
    pipelined=st.booleans(),
    seed=st.integers(1, 99),
)
def test_drawn_runs_keep_every_invariant(replica, capacities, policy, write, machines, kind, pipelined, seed):
    """Check that a run with every check and record equals a run with lookahead and without them."""
    settings = with_host(*capacities, machines, write)
    built = [
        replace(m, replica=replica, tiers=tuple(replace(tier, policy=policy) for tier in m.tiers))
        for m in settings.machines
    ]
    settings = replace(
        settings,
        cache=replace(settings.cache, policy=policy),
        movement=replace(settings.movement, layer_pipelining=pipelined),
        machines=tuple(built),
        channels={name: replace(one, **kind) for name, one in settings.channels.items()},
    )
    trace = random_trace(seed, 40, 7)
    _, checked = recorded(settings, trace)
    lookahead = simulate(settings, trace)
    assert [
        lookahead.digest_events,
        lookahead.digest_results,
        lookahead.counters,
        lookahead.end_ns,
    ] == checked["digests"]
    check_moved(lookahead, settings.cache.block_bytes)


def test_loads_take_the_time_of_their_channel():
    assert_loads_take_time(with_host(60, 400), random_trace(3, 40, 5), "cpu", "cpu->gpu")


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
