"""Settings of caches, replicas, channels and movement drawn at random, for tests of serving."""

from dataclasses import replace

from hypothesis import strategies as st
from kvcache_sim.cache.fetch import FETCHES
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, PoolSettings, SessionViewSettings
from kvcache_sim.cache.write import WRITES
from kvcache_sim.serving.queue import ORDERS
from kvcache_sim.serving.settings import ReplicaSettings

from support.clusters import BLOCK
from support.traces import MS

#: Routers whose rule the core has.
NATIVE = ("round-robin", "least-loaded", "longest-prefix", "prefill-cost")
replicas = st.builds(
    ReplicaSettings,
    max_num_batched_tokens=st.sampled_from([64, 512, 2048]),
    max_num_seqs=st.sampled_from([1, 3, 8]),
    max_model_len=st.sampled_from([None, 900]),
    queue_order=st.sampled_from(["fcfs", *ORDERS]),
    step_overhead_ns=st.sampled_from([0, 3_000_000]),
    async_scheduling=st.sampled_from(["none", "length", "stop-token"]),
    client_offset_ns=st.sampled_from([0, 5_000_000]),
)
trees = st.builds(
    CacheSettings,
    block_size_tokens=st.just(BLOCK),
    enabled=st.sampled_from([True, True, True, False]),
    cache_output=st.booleans(),
    full_hit=st.sampled_from(["prefill-remainder", "skip-prefill"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
    touch=st.sampled_from(["release", "admission"]),
    discard_on_finish=st.sampled_from([False, False, True]),
    admission=st.sampled_from(["all", "prompt"]),
    scheduler_aware_window=st.sampled_from([0, 3]),
    session_view=st.sampled_from(
        [SessionViewSettings(), SessionViewSettings(3), SessionViewSettings(None, 10**9)]
    ),
)
engines = st.builds(
    CacheSettings,
    block_size_tokens=st.just(BLOCK),
    semantics=st.sampled_from(["vllm", "sglang"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
)
kinds = st.fixed_dictionaries(
    {
        "sharing": st.sampled_from(["fifo", "fair", "fair"]),
        "priority": st.sampled_from(["in-order", "loads-first"]),
        "latency_ns": st.sampled_from([0, 30_000, 3_000_000]),
        "latency_occupies": st.booleans(),
        "piece_overhead_ns": st.sampled_from([0, 2_000]),
        "piece_gap_ns": st.sampled_from([0, 3_000]),
        "piece_submit_ns": st.sampled_from([0, 0, 4_000]),
    }
)
movements = st.builds(
    MovementSettings,
    write=st.fixed_dictionaries({"gpu": st.sampled_from(list(WRITES)), "cpu": st.sampled_from(list(WRITES))}),
    write_selective_uses=st.sampled_from([1, 2]),
    fetch=st.sampled_from(list(FETCHES)),
    layer_pipelining=st.booleans(),
    exclusive=st.sampled_from([frozenset(), frozenset({"gpu"}), frozenset({"gpu", "cpu"})]),
)
#: Of waiting for KV, those policies that prefetches change most, and the others.
_FETCHES = st.sampled_from(["wait", "timeout", "best-effort", "always", *FETCHES])
lookahead = st.builds(
    MovementSettings,
    write=st.fixed_dictionaries({"gpu": st.sampled_from(list(WRITES)), "cpu": st.sampled_from(list(WRITES))}),
    fetch=_FETCHES,
    fetch_timeout_ns=st.sampled_from([0, 3 * MS, 100 * MS, 10**9]),
    layer_pipelining=st.booleans(),
    exclusive=st.sampled_from([frozenset(), frozenset({"gpu"}), frozenset({"gpu", "cpu"})]),
    prefetch=st.sampled_from(list(PREFETCHES)),
    prefetch_share=st.sampled_from([0.03, 0.2, 0.5, 1.0]),
    prefetch_lead_ns=st.sampled_from([0, 50 * MS, 10**9]),
)
shared_pools = st.builds(
    PoolSettings,
    capacity_blocks=st.sampled_from([0, 40, 300, 300, None]),
    policy=st.sampled_from(["lru", "lru", "fifo", "lfu"]),
)
#: Movements of machines that share a pool: half without prefetches.
pool_moves = st.tuples(lookahead, st.sampled_from(["none", "none", *PREFETCHES])).map(
    lambda drawn: replace(drawn[0], prefetch=drawn[1])
)
#: Bytes per second and latency in nanoseconds of a network.
wires = st.sampled_from([(3 * 10**9, 30_000), (10**11, 0), (5 * 10**8, 2_000_000)])
