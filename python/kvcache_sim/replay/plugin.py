"""A whole trace through a plug-in, with the ceilings beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.policies.plugins.host import PolicyTier
from kvcache_sim.policies.plugins.load import Plugin
from kvcache_sim.policies.plugins.open import PolicyMaker, open_policy
from kvcache_sim.policies.plugins.views import TierView
from kvcache_sim.policies.plugins.watchdog import watched
from kvcache_sim.replay.ceilings import ceilings, share
from kvcache_sim.replay.policy_misses import explained
from kvcache_sim.replay.prompt_blocks import PromptBlocks, blocks_of_prompts, hit_tokens_sha256
from kvcache_sim.replay.request import ReplayRequest, ReplayResult, refuse_lower_tiers
from kvcache_sim.tiers import COMPUTE, TIERS


def replay_plugin(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay a trace against a plug-in and return its figures.

    Raises ``UsageError`` for a plug-in that does not load or fails its self-test (exit 2), and
    ``PolicyViolation`` where it breaks its promise on this trace (exit 1).
    """
    for wrong, flag in (
        (request.discipline == "flat", "--flat"),
        (request.touch_from == "root", "--order root"),
    ):
        if wrong:
            raise UsageError("plug-ins are called leaf first, deepest block first", where=flag)
    refuse_lower_tiers(request, variant)
    if request.store_threshold:
        raise UsageError(f"has no effect with --policy {variant}", where="--store-threshold")
    if request.capacity_blocks < 1:
        raise UsageError("capacity holds no block", where="--capacity", got=str(request.capacity_blocks))
    prompts = blocks_of_prompts(request)
    plugin, maker = open_policy(variant)
    try:
        tops = ceilings(prompts, request.capacity_blocks)
    except ValueError as error:
        raise TraceError(str(error), where=request.trace.source) from None
    tier, hits, missed = run_plugin(plugin, maker, prompts, request.capacity_blocks, request.window)
    found = share(prompts, hits)
    overlap = {"window": request.window, "not_admitted_blocks": tier.not_admitted} if request.window else {}
    possible = tops["belady"]["hit_blocks"]
    return {
        "policy": variant,
        "plugin": {"name": plugin.name, "source": plugin.source, "source_sha256": plugin.source_sha256},
        "n_requests": len(request.trace),
        "block_size": request.block_size_tokens,
        "capacity_blocks": request.capacity_blocks,
        "queried_tokens": int(request.trace.input_tokens.sum()),
        "queried_blocks": prompts.references,
        **found,
        "evictions": len(tier.evictions),
        "resident_blocks": len(tier.records),
        "refusals": tier.refusals,
        "redirects": tier.redirects,
        "holes": tier.holes,
        "per_request_hit_tokens_sha256": hit_tokens_sha256(prompts, hits),
        **overlap,
        **explained(request, prompts, plugin.name, hits, missed),
        "ceilings": tops,
        "share_of_possible": found["hit_blocks"] / possible if possible else None,
    }


def run_plugin(
    plugin: Plugin, maker: PolicyMaker, prompts: PromptBlocks, capacity_blocks: int, window: int = 0
) -> tuple[PolicyTier, NDArray[np.uint32], NDArray[np.int64]]:
    """Run every request of a trace through a fresh policy.

    Returns the tier, the hits in blocks, and the known blocks that were missed, as ``explained`` takes them.
    """
    arrival_ns: list[Any] = prompts.trace.arrival_ns.tolist()
    hits = np.zeros(len(prompts.trace), np.uint32)
    known: list[int] = prompts.known.tolist()
    missed: list[tuple[int, int, int]] = []
    with watched(plugin.name) as dog:
        policy = maker(TierView(TIERS[COMPUTE], capacity_blocks, prompts.block_size_tokens))
        tier = PolicyTier(policy, plugin.name, capacity_blocks, dog, window)
        for i, path in enumerate(prompts.numbered_paths()):
            dog.calls += 1
            gone = [block for block in path[: known[i]] if block not in tier.records]
            missed += [(i, tier.evicted_by.get(block, -1), 1) for block in gone]
            hits[i] = tier.request(path, arrival_ns[i])
    return tier, hits, np.array(missed, np.int64)
