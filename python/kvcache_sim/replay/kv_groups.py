"""Replays of vLLM's manager of several KV cache groups, under the names of the oracle rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.cache.groups import GroupSettings, native_groups
from kvcache_sim.model.kv_groups import KvLayout
from kvcache_sim.replay.engine_requests import refuse_without_effect, total_tokens
from kvcache_sim.replay.miss_tables import miss_summary, requests_table
from kvcache_sim.replay.request import OUTPUT_MODES, REJECTED, ReplayRequest, ReplayResult
from kvcache_sim.workload.trace import NO_REQUEST

#: Keys turned into text at a time.
_CHUNK = 1 << 18
#: Lines of the free queue that are printed.
_FIRST = 5


def replay_groups(request: ReplayRequest, settings: GroupSettings, alone: bool = False) -> ReplayResult:
    """Replay vLLM's manager of a model's KV cache groups; ``capacity_blocks`` are usable blocks of the pool.

    Prompts are computed in chunks, answers a token a step. ``alone`` adds the hits of the groups of each
    kind alone. Raises UsageError for settings without effect.
    """
    refuse_without_effect(request, "vllm", window=True, outputs=True, any_block=True)
    layout, trace = settings.layout, request.trace
    totals = total_tokens(request)
    # Blocks that no request can need stay at the queue's front, without a key: a pool without these blocks
    # decides the same.
    useful = min(request.capacity_blocks, total_positions(layout, totals))
    answer, lines = _replayed(request, settings, totals, useful, alone)
    digest, first = hashlib.sha256(), list[str]()
    for part in chain(["-\n" * (request.capacity_blocks - useful)], lines):
        if len(first) < _FIRST:
            first += part.split("\n", _FIRST)[:-1]
        digest.update(part.encode())
    hits = np.asarray(answer["hits"], np.int64)
    kept = hits != REJECTED
    queried, hit = int(trace.input_tokens[kept].sum()), int(hits[kept].sum())
    return {
        "system": "vLLM V1 KVCacheManager, HybridKVCacheCoordinator",
        "trace": trace.source,
        "n_requests": len(trace),
        "model": settings.model,
        "group_kinds": [group.name for group in layout.groups],
        "group_block_sizes": [group.block_size_tokens for group in layout.groups],
        "layers_per_group": [len(group.layers) for group in layout.groups],
        "page_bytes": layout.page_bytes,
        "bytes_per_block": layout.bytes_per_block,
        "hash_block_size": layout.hash_block_size,
        "scheduler_block_size": layout.scheduler_block_size,
        "capacity_blocks": request.capacity_blocks,
        "window": request.window,
        "output_mode": OUTPUT_MODES[request.outputs],
        "retention_interval": settings.retention_interval,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "queried_tokens": queried,
        "queried_tokens_not_rejected": int(trace.input_tokens[kept].sum()),
        "hit_tokens": hit,
        "hit_rate": hit / queried if queried else 0.0,
        "evictions": answer["evicted"],
        "forced_frees": answer["forced"],
        "rejected_requests": int((~kept).sum()),
        "rejected_prompt_tokens": int(trace.input_tokens[~kept].sum()),
        "shared_prefix_junctions": answer["junctions"],
        **({"alone_hit_tokens": list(answer["alone"])} if alone else {}),
        "lost_tokens_not_kept": list(answer["lost_not_kept"]),
        "lost_tokens_evicted": list(answer["lost_evicted"]),
        "prefill_chunks": answer["chunks"],
        "fresh_blocks_allocated": answer["taken"],
        "hashed_blocks_inserted": answer["inserted"],
        "peak_used_blocks": answer["peak_used_blocks"],
        "keyed_at_end": list(answer["keyed_at_end"]),
        "per_request_hit_tokens_sha256": hashlib.sha256(
            "\n".join(map(str, hits.tolist())).encode()
        ).hexdigest(),
        "final_free_queue_sha256": digest.hexdigest(),
        "final_free_queue_first5": first[:_FIRST],
        "first_20_hits": hits[:20].tolist(),
        **_misses(request, settings, hits, answer),
    }


def _misses(
    request: ReplayRequest, settings: GroupSettings, hits: NDArray[np.int64], answer: dict[str, Any]
) -> dict[str, Any]:
    """Return the misses by cause, and the table of requests, if requested: request n is at time n."""
    if not request.explain:
        return {}
    trace, count = request.trace, len(request.trace)
    junctions, causes = np.zeros(count, np.int64), np.zeros(count, np.uint8)
    for number, tokens, is_state in answer["unkept"]:
        junctions[number], causes[number] = tokens, is_state
    at = 2 * np.arange(count)
    tokens, _ = _core.timed_miss_tokens(
        trace.id_offsets,
        trace.block_ids,
        trace.block_size,
        settings.layout.scheduler_block_size,
        np.full(count, NO_REQUEST, np.int32),
        hits != REJECTED,
        np.zeros(count, np.int64),
        np.full(count, -1, np.int64),
        trace.input_tokens,
        trace.output_tokens,
        np.maximum(hits, 0),
        at,
        at + 1,
        at + 1,
        junctions,
        causes,
        answer["evicted"] > 0,
    )
    return {
        "misses": miss_summary(trace, "vllm", tokens, np.zeros((0, 3), np.int64)),
        "requests": requests_table(trace, hits, tokens),
    }


def total_positions(layout: KvLayout, totals: NDArray[np.int64]) -> int:
    """Return the number of blocks of all requests in all groups, given the tokens of each request."""
    return sum(int((-(-totals // group.block_size_tokens)).sum()) for group in layout.groups)


def _replayed(
    request: ReplayRequest, settings: GroupSettings, totals: NDArray[np.int64], capacity: int, alone: bool
) -> tuple[dict[str, Any], Iterator[str]]:
    layout, trace = settings.layout, request.trace
    groups = native_groups(layout, trace)
    answer = groups.replay(
        trace.input_tokens.astype(np.uint64),
        totals.astype(np.uint64),
        (request.window, alone),
        settings.limits,
        capacity,
    )
    names = [str(name) for name in trace.id_names]
    of, keys = answer["queue_groups"], answer["queue_keys"]
    lines = (
        groups.queue_lines(
            of[at : at + _CHUNK], keys[at : at + _CHUNK], layout.hash_block_size, trace.block_size, names
        )
        for at in range(0, len(keys), _CHUNK)
    )
    return answer, lines
