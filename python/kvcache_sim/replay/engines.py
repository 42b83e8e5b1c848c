"""Engine replays: real engines' caches on a trace, under the names of the oracle rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.engine_requests import (
    block_keys,
    native_requests,
    refuse_without_effect,
    total_tokens,
)
from kvcache_sim.replay.kv_groups import replay_groups
from kvcache_sim.replay.miss_tables import miss_summary, requests_table, with_partial_blocks
from kvcache_sim.replay.request import OUTPUT_MODES, REJECTED, ReplayRequest, ReplayResult

#: Keys turned into text at a time.
_CHUNK = 1 << 18


def replay_vllm(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay vLLM's KVCacheManager; ``capacity_blocks`` excludes vLLM's null block.

    With ``cpu_blocks`` its CPU offloading tier is below.
    """
    if request.groups is not None:
        return replay_groups(request, request.groups)
    if request.cpu_blocks:
        return replay_offloading(request)
    refuse_without_effect(request, "vllm", window=True, outputs=True)
    answer = native_requests(request).vllm(useful_blocks(request))
    hits = np.asarray(answer["hits"], np.int64)
    return {
        "system": "vLLM V1 KVCacheManager",
        **pool_figures(request, answer, hits),
        **miss_figures(request, "vllm", hits, answer),
    }


def replay_offloading(request: ReplayRequest) -> ReplayResult:
    """Replay vLLM's KVCacheManager with its CPUOffloadingManager below."""
    policy = f"vllm with --cpu-chunks, {request.cpu_policy}"
    refuse_without_effect(request, policy, window=True, outputs=True, store_threshold=True, cpu=True)
    if request.secondary:
        return replay_tiering(request)
    chunks = min(request.cpu_blocks // request.chunk_blocks, 2**31 - 1), request.chunk_blocks
    tier = (request.cpu_policy, chunks, request.store_threshold)
    answer = native_requests(request).vllm_offloading(
        useful_blocks(request), *tier, min(request.step_tokens, 2**31 - 1)
    )
    return offloading_figures(request, answer)


def replay_tiering(request: ReplayRequest) -> ReplayResult:
    """Replay vLLM's pool with its CPU tier and a secondary tier below."""
    useless = {"--store-threshold": request.store_threshold != 0, "--chunk-tokens": request.chunk_blocks != 1}
    for option in (option for option, is_given in useless.items() if is_given):
        raise UsageError("has no effect with --secondary-tier", where=option)
    sizes = (
        useful_blocks(request),
        request.cpu_policy,
        request.cpu_blocks,
        min(request.step_tokens, 2**31 - 1),
    )
    answer = native_requests(request).vllm_tiering(*sizes)
    return {
        **offloading_figures(request, answer),
        "system": "vLLM V1 KVCacheManager + TieringOffloadingManager",
        "promoted_chunks": answer["promoted"],
        "secondary_chunks": answer["below"],
        "lookups_given_up": answer["aborted"],
    }


def offloading_figures(request: ReplayRequest, answer: dict[str, Any]) -> ReplayResult:
    """Return the figures of the pool and its CPU tier."""
    hits, loaded = (np.asarray(answer[name], np.int64) for name in ("hits", "loaded"))
    # the last token is computed, also where the tier brings its block
    cached = np.minimum(hits + loaded, request.trace.input_tokens - 1)
    return {
        "system": "vLLM V1 KVCacheManager + CPUOffloadingManager",
        **pool_figures(request, answer, hits),
        "cpu_chunks": request.cpu_blocks // request.chunk_blocks,
        "chunk_tokens": request.chunk_blocks * request.block_size_tokens,
        "cpu_policy": request.cpu_policy,
        "store_threshold": request.store_threshold,
        "max_num_batched_tokens": request.step_tokens,
        "loaded_tokens": int(loaded.sum()),
        "per_request_loaded_tokens_sha256": joined_sha256(map(str, loaded.tolist())),
        "cached_tokens": int(cached[hits != REJECTED].sum()),
        "stored_chunks": answer["stored"],
        "evicted_chunks": answer["tier_evicted"],
        "refused_stores": answer["refused"],
        "final_cpu_chunks": answer["resident"],
        **arc_figures(answer["arc"]),
        **miss_figures(request, "vllm", np.where(hits == REJECTED, hits, hits + loaded), answer),
    }


def useful_blocks(request: ReplayRequest) -> int:
    """Return the blocks of the pool that can have an effect: a pool of this size decides the same.

    Blocks that no request can need are queued between the free blocks without a key and those with a key.
    """
    needed = -(-total_tokens(request) // request.block_size_tokens)
    return min(request.capacity_blocks, int(needed.sum()))


def pool_figures(request: ReplayRequest, answer: dict[str, Any], hits: NDArray[np.int64]) -> dict[str, Any]:
    """Return the figures of vLLM's pool, under the names of the oracle rows."""
    idle = _idle_chunks(request.capacity_blocks - useful_blocks(request))
    digest, first = hashlib.sha256(), list[str]()
    for chunk in chain(idle, _queue_chunks(request, answer["free_queue"])):
        first = first or chunk.split("\n", 5)[:5]
        digest.update(chunk.encode())
    size, rejected = request.block_size_tokens, hits == REJECTED
    return {
        **head(request),
        "block_size": size,
        "capacity_blocks": request.capacity_blocks,
        "num_gpu_blocks": request.capacity_blocks + 1,
        **how_replayed(request),
        **hit_figures(request, hits),
        "hit_blocks": int(hits[~rejected].sum()) // size,
        "queried_full_blocks": int((request.trace.input_tokens // size).sum()),
        "fresh_blocks_allocated": answer["taken"],
        "hashed_blocks_inserted": answer["inserted"],
        "evictions": answer["evicted"],
        "cached_blocks_at_end": answer["cached_blocks"],
        "unique_hashes_at_end": answer["unique_keys"],
        "rejected_requests": int(rejected.sum()),
        "rejected_prompt_tokens": int(request.trace.input_tokens[rejected].sum()),
        "forced_frees": answer["forced"],
        "final_free_queue_sha256": digest.hexdigest(),
        "final_free_queue_first5": [line for line in first if line],
    }


def arc_figures(sizes: Any) -> dict[str, Any]:
    """Return the lengths of ARC's lists, and its target, where the policy has them."""
    names = ("t1", "t2", "b1", "b2", "target_t1")
    return dict(zip(names, sizes, strict=True)) if sizes else {}


def replay_sglang(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay SGLang's RadixCache under one of its six policies; a block is a page."""
    refuse_without_effect(request, f"sglang:{variant}", window=True, outputs=True)
    page = request.block_size_tokens
    capacity_tokens = request.capacity_blocks * page
    answer = _core.replay_sglang(native_requests(request), "classic", (variant, 0, 0), capacity_tokens)
    leaves = _leaf_lines(request, answer["leaf_keys"], answer["leaf_pages"])
    hits = np.asarray(answer["hits"], np.int64)
    return {
        "system": "SGLang RadixCache",
        **head(request),
        "page_size": page,
        "capacity_tokens": capacity_tokens,
        "policy": variant,
        **how_replayed(request),
        **hit_figures(request, hits),
        "evicted_tokens": answer["evicted_pages"] * page,
        "evicted_nodes": answer["evicted_leaves"],
        "evict_calls": answer["evict_calls"],
        "forced_finishes": answer["forced"],
        "rejected_requests": int((hits == REJECTED).sum()),
        "rejected_prompt_tokens": int(request.trace.input_tokens[hits == REJECTED].sum()),
        "final_tree_tokens": answer["device_pages"] * page,
        "final_tree_nodes": answer["device_nodes"],
        "final_leaves": len(leaves),
        "final_free_tokens": answer["free_tokens"],
        "final_leaf_eviction_order_sha256": joined_sha256(leaves),
        "final_leaf_first5": leaves[:5],
        **miss_figures(request, f"sglang:{variant}", hits, answer),
    }


def replay_offload(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay vLLM's CPU offloading tier, alone; a block is one of its chunks."""
    refuse_without_effect(request, f"vllm-offload:{variant}", store_threshold=True)
    capacity, threshold = request.capacity_blocks, request.store_threshold
    answer = native_requests(request).offload(variant, capacity, threshold)
    hits = np.asarray(answer["hits"], np.int64)
    return {
        "system": "vLLM CPUOffloadingManager",
        **head(request),
        "block_size": request.block_size_tokens,
        "capacity_chunks": capacity,
        "policy": variant,
        "store_threshold": threshold,
        **hit_figures(request, hits),
        "stored_chunks": answer["stored"],
        "evicted_chunks": answer["evicted"],
        "refused_stores": answer["refused"],
        **arc_figures(answer["arc"]),
        **miss_figures(request, f"vllm-offload:{variant}", hits, answer),
    }


def head(request: ReplayRequest) -> dict[str, Any]:
    """Return the trace and the number of its requests."""
    return {"trace": request.trace.source, "n_requests": len(request.trace)}


def how_replayed(request: ReplayRequest) -> dict[str, Any]:
    """Return the overlap of requests and the tokens that they fill."""
    return {"window": request.window, "output_mode": OUTPUT_MODES[request.outputs]}


def hit_figures(request: ReplayRequest, hits: NDArray[np.int64]) -> dict[str, Any]:
    """Return the tokens of all prompts, of those not rejected, and of hits."""
    queried, hit = int(request.trace.input_tokens.sum()), int(hits[hits != REJECTED].sum())
    return {
        "queried_tokens": queried,
        "queried_tokens_not_rejected": int(request.trace.input_tokens[hits != REJECTED].sum()),
        "hit_tokens": hit,
        "hit_rate": hit / queried,
        "per_request_hit_tokens_sha256": joined_sha256(map(str, hits.tolist())),
    }


def miss_figures(
    request: ReplayRequest, policy: str, hits: NDArray[np.int64], answer: dict[str, Any]
) -> dict[str, Any]:
    """Return the misses by cause, and the table of requests, if requested."""
    if not request.explain:
        return {}
    tokens = with_partial_blocks(np.asarray(answer["miss_tokens"], np.int64), request.trace)
    evicted = np.asarray(answer["evicted_misses"], np.int64).reshape(-1, 3)
    return {
        "misses": miss_summary(request.trace, policy, tokens, evicted),
        "requests": requests_table(request.trace, hits, tokens),
    }


def joined_sha256(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines joined by line feeds, without one at the end."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _idle_chunks(blocks: int) -> Iterator[str]:
    """Yield the lines of blocks that were never allocated."""
    for start in range(0, blocks, _CHUNK):
        yield "-\n" * min(_CHUNK, blocks - start)


def _queue_chunks(request: ReplayRequest, queue: NDArray[np.uint64]) -> Iterator[str]:
    """Yield the text of the free queue piece by piece, since it may be very long."""
    names = [str(name) for name in request.trace.id_names]
    per_id = request.trace.block_size // request.block_size_tokens
    for start in range(0, len(queue), _CHUNK):
        yield _core.key_lines(queue[start : start + _CHUNK], per_id, names)


def _leaf_lines(request: ReplayRequest, first: NDArray[np.uint64], pages: NDArray[np.uint32]) -> list[str]:
    keys, page = block_keys(request), request.block_size_tokens
    labels = (keys.first_token_label(keys.decode(code)) for code in first.tolist())
    return [f"{label}:{count * page}" for label, count in zip(labels, pages.tolist(), strict=True)]
