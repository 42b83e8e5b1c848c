"""One eviction policy at one capacity: hits, evictions and upper bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kvcache_sim import _core
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.policies.resolve import parse_variant, row_of
from kvcache_sim.policies.settings import Variant
from kvcache_sim.replay.policy_misses import explained
from kvcache_sim.replay.prompt_blocks import PromptBlocks, blocks_of_prompts, hit_tokens_sha256
from kvcache_sim.replay.request import ReplayRequest, ReplayResult, refuse_lower_tiers
from kvcache_sim.replay.upper_bounds import share, upper_bounds

_UNBOUNDED = 2**63


def replay_prefix(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay one eviction policy, prefix-aware or flat, and return its figures.

    Requests come in file order, and hold their blocks until ``window`` run and another starts; times matter
    to ``ttl`` and ``priority`` only. Raises ``UsageError`` for settings without effect, ``TraceError`` for a
    trace that is no prefix tree.
    """
    prompts = blocks_of_prompts(request)
    policy = parse_variant(variant, request.block_size_tokens)
    try:
        if request.discipline == "flat":
            return _head(request, prompts, variant) | _flat(request, prompts, policy)
        answer = prefix_answer(request, prompts, policy)
        tops = upper_bounds(prompts, request.capacity_blocks)
    except ValueError as error:
        raise TraceError(str(error), where=request.trace.source) from None
    result = _head(request, prompts, variant) | _figures(prompts, answer)
    hits = int(answer.hits.sum(dtype=np.int64))
    result |= overlap(request, prompts.references - hits - answer.evictions - answer.resident)
    possible = tops["belady"]["hit_blocks"]
    # an upper bound keeps no record of evictions
    missed = None if row_of(policy.name).is_upper_bound else answer.missed
    result |= explained(request, prompts, variant, answer.hits, missed)
    result["upper_bounds"] = tops
    result["share_of_possible"] = result["hit_blocks"] / possible if possible else None
    return result


def check_policy_settings(request: ReplayRequest, policy: Variant) -> None:
    """Raise ``UsageError`` for settings without effect on a policy."""
    if request.capacity_blocks < 1:
        raise UsageError(
            "capacity holds no block",
            where="--capacity",
            got=str(request.capacity_blocks),
            expected="≥ 1 block",
        )
    refuse_lower_tiers(request, policy.name)
    if request.store_threshold:
        raise UsageError(f"has no effect with --policy {policy.name}", where="--store-threshold")
    if request.window and row_of(policy.name).is_upper_bound:
        raise UsageError(
            f"{policy.name} is an upper bound: its requests come one after another", where="--window"
        )
    if (
        request.window
        and request.discipline == "prefix"
        and request.touch_from == "root"
        and policy.name == "lru"
    ):
        raise UsageError(
            "a list touched root first releases blocks that others need: nothing is held",
            where="--window",
            got=str(request.window),
            hint="use --order tail",
        )
    if request.discipline == "prefix" and request.touch_from == "root" and policy.name != "lru":
        raise UsageError(
            f"{policy.name} evicts leaves first, so the order of touch has no effect",
            where="--order",
            got="root",
            hint="--order root is for lru, or with --flat",
        )
    if request.discipline == "flat" and policy.name == "unbounded":
        raise UsageError("a flat cache has no such upper bound", where="--flat", hint="use --policy belady")


def prefix_answer(request: ReplayRequest, prompts: PromptBlocks, policy: Variant) -> _core.ReplayAnswer:
    """Return the decisions of one policy on the blocks of prompts; raises ``UsageError``."""
    check_policy_settings(request, policy)
    native, capacity, window = prompts.native, request.capacity_blocks, _window(request)
    policy = replace(policy, names=prompts.names)
    known = prompts.known if request.explain else None
    if policy.name == "lru" and not window:
        return native.recency(capacity, request.touch_from, known)
    if policy.name == "belady":
        return native.belady(capacity)
    if policy.name == "unbounded":
        return native.belady(_UNBOUNDED)
    return native.leaf_first(policy.name, capacity, policy.native, window, known)


def _window(request: ReplayRequest) -> int:
    """Return the number of overlapping requests, at most that of all requests."""
    return min(request.window, max(1, len(request.trace)))


def _flat(request: ReplayRequest, prompts: PromptBlocks, policy: Variant) -> ReplayResult:
    """Return the figures of a plain cache of objects, and of the flat queue."""
    check_policy_settings(request, policy)
    capacity, touch_from, native = request.capacity_blocks, request.touch_from, prompts.native
    window, policy = _window(request), replace(policy, names=prompts.names)
    if policy.name == "belady":
        objects = native.belady_flat(capacity, touch_from)
    else:
        objects = native.plain(policy.name, capacity, touch_from, policy.native, window)
    hits = int(objects.hits.sum(dtype=np.int64))
    result = flat_figures(request, prompts.references, hits, objects.evictions, objects.resident)
    if request.explain:
        result["requests"] = {
            "request": list(range(len(request.trace))),
            "input_tokens": request.trace.input_tokens.tolist(),
            "queried_blocks": (prompts.blocks + prompts.private_blocks).tolist(),
            "hit_blocks": objects.hits.tolist(),
        }
    best = int(native.belady_flat(capacity, touch_from).hits.sum(dtype=np.int64))
    result["upper_bounds"] = {"belady": {"hits": best}}
    if policy.name != "belady":
        # a plain queue behind a prefix look-up: evict first, insert root first, pin the running request
        queue = native.plain(policy.name, capacity, "queue", policy.native, window)
        result["prefix_lookup"] = _figures(prompts, queue)
    return result


def flat_figures(
    request: ReplayRequest, accesses: int, hits: int, evictions: int, resident: int
) -> ReplayResult:
    """Return the figures of a plain cache of objects under libCacheSim's names."""
    return {
        "order": "rev" if request.touch_from == "tail" else "fwd",
        "capacity_objects": request.capacity_blocks,
        "accesses": accesses,
        "hits": hits,
        "misses": accesses - hits,
        "hit_ratio": hits / max(1, accesses),
        "evictions": evictions,
        "resident_blocks": resident,
        **overlap(request, accesses - hits - evictions - resident),
    }


def head(request: ReplayRequest, variant: str, requests: int, tokens: int, references: int) -> ReplayResult:
    """Return the trace and the settings of a replay: requests, prompt tokens, references to blocks."""
    return {
        "policy": variant,
        "discipline": request.discipline,
        "n_requests": requests,
        "block_size": request.block_size_tokens,
        "capacity_blocks": request.capacity_blocks,
        "queried_tokens": tokens,
        "queried_blocks": references,
    }


def overlap(request: ReplayRequest, refused: int) -> dict[str, Any]:
    """Return the overlapping requests and the blocks not admitted: neither hits nor insertions."""
    return {"window": request.window, "not_admitted_blocks": refused} if request.window else {}


def _head(request: ReplayRequest, prompts: PromptBlocks, variant: str) -> ReplayResult:
    tokens = int(request.trace.input_tokens.sum())
    return head(request, variant, len(request.trace), tokens, prompts.references)


def _figures(prompts: PromptBlocks, answer: _core.ReplayAnswer) -> dict[str, Any]:
    return share(prompts, answer.hits) | {
        "evictions": answer.evictions,
        "expired": answer.expired,
        "resident_blocks": answer.resident,
        "per_request_hit_tokens_sha256": hit_tokens_sha256(prompts, answer.hits),
    }
