"""One policy at one capacity, with its upper bounds: the figures of ``kvsim cachesim``."""

from __future__ import annotations

from dataclasses import replace

from kvcache_sim.policies.engine_modes import engine_mode
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest, ReplayResult


def simulate_cache(request: ReplayRequest, policy: str) -> ReplayResult:
    """Replay a trace against the policy of a name, and return its figures and upper bounds.

    The upper bounds take the same requests one after another, outputs private. Raises ``UsageError`` for an
    unknown policy or a setting without effect, ``TraceError`` for a trace that is no prefix tree.
    """
    family, variant = resolve_policy(policy)
    result = REPLAYERS[family](request, variant)
    mode = engine_mode(family, request.groups is not None)
    if mode is not None:
        result["equals"] = mode.sentence
    # upper bounds always compute a last token, LMCache finds whole prompts, providers have no capacity
    has_upper_bounds = (
        not request.reuse_outputs and request.groups is None and not family.startswith(("lmcache", "hosted"))
    )
    if "upper_bounds" not in result and has_upper_bounds:
        result |= _upper_bounds(request, int(result["hit_tokens"]) + int(result.get("loaded_tokens", 0)))
    return result


def _upper_bounds(request: ReplayRequest, hit_tokens: int) -> ReplayResult:
    from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
    from kvcache_sim.replay.upper_bounds import upper_bounds

    alone = replace(request, window=0, store_threshold=0)
    total_blocks = request.capacity_blocks + request.host_blocks
    if request.storage is not None:
        total_blocks += (
            len(request.trace.block_ids) if request.storage.blocks is None else request.storage.blocks
        )
    tops = upper_bounds(blocks_of_prompts(alone), total_blocks)
    possible = tops["belady"]["hit_tokens"]
    return {"upper_bounds": tops, "share_of_possible": hit_tokens / possible if possible else None}
