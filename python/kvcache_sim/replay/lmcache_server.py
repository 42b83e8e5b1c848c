"""Replay of the memory of LMCache's server, whose loop evicts by the trace's clock."""

from __future__ import annotations

import numpy as np

from kvcache_sim import _core
from kvcache_sim.errors import UsageError
from kvcache_sim.replay.engine_requests import block_keys, native_requests, refuse_without_effect
from kvcache_sim.replay.engine_tiers import _FIRST, _lines_sha256
from kvcache_sim.replay.engines import head, hit_figures, how_replayed, miss_figures
from kvcache_sim.replay.request import ReplayRequest, ReplayResult
from kvcache_sim.workload.trace import OPEN_LOOP


def replay_lmcache_server(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay the L1 of LMCache's server under ``lru`` or ``arc``, each request at its time of the trace.

    A block is a chunk. Whole prompts may hit; a prompt's chunks are written step by step, those of a step
    together or not at all.
    """
    policy = f"lmcache-server:{variant}"
    refuse_without_effect(request, policy, window=True)
    trace, capacity, chunk = request.trace, request.capacity_blocks, request.block_size_tokens
    if (trace.think_ns != OPEN_LOOP).any() or (len(trace) > 1 and not np.ptp(trace.arrival_ns)):
        raise UsageError(
            "the trace has no time of every request, and the server evicts once a second",
            where="--policy",
            got=policy,
            hint="give its rows times, or replay lmcache:lru, which evicts for each write",
        )
    keys = block_keys(request)
    times_ns = trace.arrival_ns.astype(np.uint64)
    answer = _core.replay_lmcache_server(
        native_requests(request), times_ns, variant, capacity, request.step_tokens
    )
    hits = np.asarray(answer["hits"], np.int64)
    order = [keys.label(keys.decode(code)) for code in answer["keys"].tolist()]
    return {
        "system": "LMCache server L1Manager + L1EvictionController",
        **head(request),
        "chunk_tokens": chunk,
        "cpu_chunks": capacity,
        "step_tokens": request.step_tokens,
        "policy": variant.upper(),
        **how_replayed(request),
        **hit_figures(request, hits),
        "first_20_hits": hits[:_FIRST].tolist(),
        "stored_chunks": answer["stored"],
        "lost_chunks": answer["lost"],
        "cpu_evictions": answer["evicted"],
        "final_cpu_chunks": len(order),
        "final_cpu_order_sha256": _lines_sha256(order),
        **miss_figures(request, policy, hits, answer),
    }
