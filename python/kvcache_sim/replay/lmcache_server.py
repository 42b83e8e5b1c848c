"""Replay of LMCache's server, whose loops evict by the trace's clock."""

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
    """Replay LMCache's server under ``lru`` or ``arc``, each request at its time of the trace.

    Its storage (L2) has ``disk_blocks`` chunks and the same policy; 0: none. A block is a chunk. Whole
    prompts may hit; a prompt's chunks are written step by step, those of a step together or not at all.
    """
    policy = f"lmcache-server:{variant}"
    refuse_without_effect(request, policy, window=True, disk=True)
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
        native_requests(request), times_ns, variant, (capacity, request.disk_blocks), request.step_tokens
    )
    hits, from_disk = (np.asarray(answer[name], np.int64) for name in ("hits", "from_disk"))
    chunks = (answer[name].tolist() for name in ("keys", "disk_keys"))
    order, below = ([keys.label(keys.decode(code)) for code in level] for level in chunks)
    evicted, evicted_below = answer["evicted"]
    storage = {
        "disk_chunks": request.disk_blocks,
        "disk_hit_chunks": int(from_disk.sum()),
        "disk_evictions": evicted_below,
        "final_disk_chunks": len(below),
        "final_disk_order_sha256": _lines_sha256(below),
    }
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
        "cpu_evictions": evicted,
        "final_cpu_chunks": len(order),
        "final_cpu_order_sha256": _lines_sha256(order),
        **(storage if request.disk_blocks else {}),
        **miss_figures(request, policy, hits, answer),
    }
