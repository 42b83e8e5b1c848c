"""Replays of engines with lower tiers of their own: SGLang with HiCache, LMCache, and its server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.engine_requests import (
    block_keys,
    native_requests,
    refuse_without_effect,
)
from kvcache_sim.replay.engines import head, hit_figures, how_replayed, joined_sha256, miss_figures
from kvcache_sim.replay.request import REJECTED, ReplayRequest, ReplayResult, StorageCapacity
from kvcache_sim.workload.trace import OPEN_LOOP

#: HiCache's policies of writes to the host: SGLang's ``hicache_write_policy``.
WRITE_POLICIES = ("write_through", "write_through_selective", "write_back")
#: Requests whose figures are printed one by one.
_FIRST = 20


def replay_sglang_unified(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay SGLang's UnifiedRadixCache, with HiCache where the request has blocks on the host.

    A block is a page. ``tlru:4096:256`` names the tokens that may be recomputed within the latency budget,
    and the tokens that the next prompt is expected to add.
    """
    policy = f"sglang-unified:{variant}"
    refuse_without_effect(request, policy, window=True, outputs=True, host=True)
    strategy = _strategy(variant)
    page = request.block_size_tokens
    capacity_tokens, write = request.capacity_blocks * page, request.write_policy
    below = request.storage
    storage = None if below is None else (below.blocks, below.prefetch_threshold_tokens)
    host = (write, request.host_blocks) if write else None
    answer = _core.replay_sglang(
        native_requests(request), "unified", strategy, capacity_tokens, host, storage
    )
    hits, loaded = (np.asarray(answer[name], np.int64) for name in ("hits", "loaded"))
    keys = block_keys(request)
    leaves = [
        f"{end * page}:{keys.token_value(keys.decode(code))}"
        for code, end in zip(answer["leaf_keys"].tolist(), answer["leaf_pages"], strict=True)
    ]
    return {
        "system": f"SGLang UnifiedRadixCache{' + HiCache' if write else ''}{' + storage' if storage else ''}",
        **head(request),
        "page_size": page,
        "capacity_tokens": capacity_tokens,
        "policy": variant,
        **how_replayed(request),
        **hit_figures(request, hits),
        "first_20_hits": hits[:_FIRST].tolist(),
        "evicted_tokens": answer["evicted_pages"] * page,
        "evicted_leaves": answer["evicted_leaves"],
        "forced_finishes": answer["forced"],
        "rejected_requests": int((hits == REJECTED).sum()),
        "rejected_prompt_tokens": int(request.trace.input_tokens[hits == REJECTED].sum()),
        "final_tree_tokens": answer["device_pages"] * page,
        "final_device_nodes": answer["device_nodes"],
        "final_free_tokens": answer["free_tokens"],
        "final_leaves": len(leaves),
        "final_leaf_eviction_order_sha256": _lines_sha256(leaves),
        "final_leaf_first5": leaves[:5],
        **(_host_figures(request, answer) if write else {}),
        **(_storage_figures(request, below, answer) if below is not None else {}),
        **miss_figures(request, policy, np.where(hits == REJECTED, hits, hits + loaded), answer),
    }


def _host_figures(request: ReplayRequest, answer: dict[str, Any]) -> dict[str, Any]:
    page = request.block_size_tokens
    loaded = np.asarray(answer["loaded"], np.int64)
    return {
        "write_policy": request.write_policy,
        "host_capacity_tokens": request.host_blocks * page,
        "loaded_tokens": int(loaded.sum()),
        "per_request_loaded_tokens_sha256": joined_sha256(map(str, loaded.tolist())),
        "first_20_loaded": loaded[:_FIRST].tolist(),
        "written_tokens": answer["written_pages"] * page,
        "host_evicted_tokens": answer["host_evicted_pages"] * page,
        "host_evicted_leaves": answer["host_evicted_leaves"],
        "final_host_tokens": answer["host_pages"] * page,
        "final_host_nodes": answer["host_nodes"],
        "final_host_free_tokens": answer["host_free_pages"] * page,
    }


def _storage_figures(
    request: ReplayRequest, storage: StorageCapacity, answer: dict[str, Any]
) -> dict[str, Any]:
    page = request.block_size_tokens
    prefetched = np.asarray(answer["prefetched"], np.int64)
    return {
        "storage_capacity_tokens": None if storage.blocks is None else storage.blocks * page,
        "prefetch_threshold_tokens": storage.prefetch_threshold_tokens,
        "prefetched_tokens": int(prefetched.sum()),
        "per_request_prefetched_tokens_sha256": joined_sha256(map(str, prefetched.tolist())),
        "first_20_prefetched": prefetched[:_FIRST].tolist(),
        "storage_written_tokens": answer["storage_written_pages"] * page,
        "storage_evicted_tokens": answer["storage_evicted_pages"] * page,
        "final_storage_tokens": answer["storage_pages"] * page,
    }


def _strategy(variant: str) -> tuple[str, int, int]:
    name, *parameters = variant.split(":")
    if parameters and (
        name != "tlru" or len(parameters) > 2 or not all(text.isdecimal() for text in parameters)
    ):
        raise UsageError(
            "policy setting not understood",
            where="--policy",
            got=repr(f"sglang-unified:{variant}"),
            expected="tlru:THRESHOLD:NEXT_PROMPT in tokens, such as sglang-unified:tlru:4096:256",
        )
    threshold, next_prompt = (*map(int, parameters), 0, 0)[:2]
    if max(threshold, next_prompt) >= 2**31 - 1:
        raise UsageError("too many tokens", where="--policy", got=variant, expected="fewer than 2³¹ - 1")
    return name, threshold, next_prompt


def replay_lmcache(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay LMCache's local CPU backend, and below it its disk backend where ``disk_blocks`` says so.

    A block is a chunk. Whole prompts may hit; the tokens after the last whole chunk are not stored.
    """
    policy = f"lmcache:{variant}"
    refuse_without_effect(request, policy, disk=True)
    cpu, disk, chunk = request.capacity_blocks, request.disk_blocks, request.block_size_tokens
    keys = block_keys(request)
    answer = _core.replay_lmcache(native_requests(request), variant, cpu, disk)
    hits, from_disk = (np.asarray(answer[name], np.int64) for name in ("hits", "from_disk"))
    chunks = (answer[name].tolist() for name in ("cpu_keys", "disk_keys"))
    on_cpu, on_disk = ([keys.label(keys.decode(code)) for code in tier] for tier in chunks)
    return {
        "system": "LMCache LocalCPUBackend + LocalDiskBackend",
        **head(request),
        "chunk_tokens": chunk,
        "cpu_chunks": cpu,
        "disk_chunks": disk,
        "policy": variant.upper(),
        **hit_figures(request, hits),
        "first_20_hits": hits[:_FIRST].tolist(),
        "cpu_hit_chunks": answer["cpu_hits"],
        "disk_hit_chunks": int(from_disk.sum()),
        "per_request_disk_chunks_sha256": joined_sha256(map(str, from_disk.tolist())),
        "stored_chunks": answer["stored"],
        "short_stores": answer["short_stores"],
        "cpu_evictions": answer["cpu_evictions"],
        "disk_evictions": answer["disk_evictions"],
        "final_cpu_chunks": len(on_cpu),
        "final_disk_chunks": len(on_disk),
        "final_cpu_order_sha256": _lines_sha256(on_cpu),
        "final_disk_order_sha256": _lines_sha256(on_disk) if disk else None,
        **miss_figures(request, policy, hits, answer),
    }


def _lines_sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


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
