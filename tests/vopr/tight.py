"""Clusters whose tiers have scarcely space for their requests: many short runs, judged by the invariants alone.

Every eighth run is compared with the specification. Space that is being made, held, or waited for is where rules of
tiers, prefetches, reads of other machines, pools and hand-overs meet.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.fetch import FETCHES
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, PoolSettings
from kvcache_sim.cache.write import WRITES
from kvcache_sim.serving.settings import ClusterSettings, HandoverSettings, ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace
from support.agreement import BeyondSpec, agree
from support.clusters import BLOCK, uneven, varied
from support.pools import pools
from support.product.traces import select_rows
from support.shared_pool import sharing
from support.traces import turns, with_aborts

from vopr.finding import oracle

MS = 1_000_000
#: Clusters of a case.
_CLUSTERS = 24
_NETWORKS = ((3 * 10**9, 30_000), (10**11, 0), (5 * 10**8, 2 * MS))
_CHANNELS: tuple[dict[str, Any], ...] = (
    {},
    {"sharing": "fair"},
    {"priority": "loads-first"},
    {"latency_ns": 3 * MS},
    {"latency_ns": 3 * MS, "latency_occupies": True},
    {"sharing": "fair", "latency_ns": 30_000},
)


class Tight(NamedTuple):
    """Seeds of clusters, and how many of the requests of each are sent."""

    seeds: tuple[int, ...]
    requests: int


def draw(seed: int) -> Tight:
    """Return the clusters of a seed."""
    return Tight(tuple(range(seed, seed + _CLUSTERS)), 80)


def cluster(seed: int) -> tuple[ClusterSettings, Trace]:
    """Return a random cluster and its requests."""
    choice = random.Random(f"tight {seed}")
    one = choice.choice
    tiers = (one([60, 70, 90, 120, 160]), one([10, 20, 40, 60, 90]), one([20, 40, 60, 100, 200]))
    settings = _of_kind(one(["alone", "cluster", "pool", "hand-over"]), tiers[: one([2, 3, 3])], choice)
    requests, is_closed = one([20, 40, 40, 80]), one([True, False])
    if choice.random() < 0.25:
        trace = with_aborts(seed % 10**9, requests, closed_loop=is_closed)
    else:
        trace = turns(seed % 10**9, is_closed, requests)
    names = [f"s{number}" for number in range(int(trace.session.max()) + 1)]
    arrivals = trace.arrival_ns // one([1, 1, 3, 10, 100])
    return settings, replace(trace, arrival_ns=arrivals, session_names=names)


def _of_kind(kind: str, tiers: tuple[int, ...], choice: random.Random) -> ClusterSettings:
    one, channels = choice.choice, choice.choice(_CHANNELS)
    moves, replica = _moves(choice), _replica(choice)
    if kind == "hand-over":
        path = one(["gpu-direct", "via-cpu"])
        handover = HandoverSettings(
            path=path, transfer=one(["at-end", "layer-by-layer"]), first_token=one(["decode", "prefill"])
        )
        own = {"async_scheduling": replica.async_scheduling, "max_num_batched_tokens": one([128, 512])}
        settings = replace(pools(one(["pd", "ppd", "pdd", "pbd"]), handover, tiers, **own), movement=moves)
        return sharing(settings, _pool(choice), one(_NETWORKS), channels) if one([True, False]) else settings
    shapes = [tiers] * one([1, 2, 2, 3])
    if choice.random() < 0.4:
        shapes = [tuple(max(5, int(n * choice.uniform(0.6, 2))) for n in tiers) for _ in shapes]
        shapes = [(max(60, shape[0]), *shape[1:]) for shape in shapes]
    plain = uneven(shapes, latency_occupies=one([True, False]))
    if kind == "cluster":
        moves = replace(moves, lookup="cluster")
    wire = one(_NETWORKS) if kind == "cluster" else None
    settings = varied(plain, replica, channels, wire, cache=_cache(choice), movement=moves)
    return sharing(settings, _pool(choice), one(_NETWORKS), channels) if kind == "pool" else settings


def _pool(choice: random.Random) -> PoolSettings:
    return PoolSettings(choice.choice([0, 20, 60, 300, None]), choice.choice(["lru", "fifo", "lfu"]))


def _replica(choice: random.Random) -> ReplicaSettings:
    one = choice.choice
    return ReplicaSettings(
        max_num_batched_tokens=one([64, 512, 2048]),
        max_num_seqs=one([1, 3, 8]),
        async_scheduling=one(["none", "length", "stop-token"]),
    )


def _cache(choice: random.Random) -> CacheSettings:
    one = choice.choice
    return CacheSettings(
        block_size_tokens=BLOCK,
        cache_output=one([True, False]),
        full_hit=one(["prefill-remainder", "skip-prefill"]),
        touch=one(["release", "admission"]),
        discard_on_finish=one([False, False, False, True]),
        admission=one(["all", "prompt"]),
        scheduler_aware_window=one([0, 3]),
        lookup_ns=one([0, 2 * MS]),
    )


def _moves(choice: random.Random) -> MovementSettings:
    one = choice.choice
    pipelined = one([True, False])
    return MovementSettings(
        write={"gpu": one(WRITES), "cpu": one(WRITES)},
        write_selective_uses=one([1, 2]),
        fetch=one(FETCHES),
        fetch_timeout_ns=one([0, 3 * MS, 100 * MS]),
        prefetch=one(["none", *PREFETCHES]),
        prefetch_share=one([0.1, 0.5, 1.0]),
        prefetch_lead_ns=one([0, 50 * MS, 1_000 * MS]),
        layer_pipelining=pipelined,
        read_buffer_layers=one([None, None, 1, 3]) if pipelined else None,
        remote_disk=one(["direct", "staged"]),
        exclusive=one([frozenset(), frozenset(), frozenset({"gpu"}), frozenset({"gpu", "cpu"})]),
    )


def run(case: Tight, folder: Path) -> str:
    """Run the clusters of a case."""
    del folder
    for seed in case.seeds:
        settings, trace = cluster(seed)
        trace = select_rows(trace, np.arange(min(case.requests, len(trace))))
        try:
            with oracle(f"cluster {seed}", (UsageError, BeyondSpec)):
                if seed % 8:
                    simulate(settings, trace, options=RunOptions(check="cheap" if seed % 3 else "full"))
                else:
                    agree(settings, trace)
        except (UsageError, BeyondSpec):
            continue
    return "invariants, specification"


def smaller(case: Tight) -> Iterator[Tight]:
    """Yield one cluster alone, then fewer of its requests."""
    if len(case.seeds) > 1:
        yield from (Tight((seed,), case.requests) for seed in case.seeds)
    for requests in (case.requests // 2, case.requests * 3 // 4, case.requests - 1):
        if requests:
            yield Tight(case.seeds, requests)


def shown(case: Tight, folder: Path) -> str:
    """Return what runs the clusters again; their settings are written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.txt").write_text("\n".join(str(cluster(seed)[0]) for seed in case.seeds))
    return f"the first {case.requests} requests of `cluster(seed)` of tests/vopr/tight.py, seeds {case.seeds}"
