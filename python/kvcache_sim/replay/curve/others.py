"""Other policies, and Belady's upper bound, at chosen capacities of the curve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvcache_sim.policies.resolve import parse_variant, resolve_policy
from kvcache_sim.replay.prefix import prefix_answer
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.replay.upper_bounds import share

_FIGURES = ("hit_blocks", "block_hit_rate", "hit_tokens", "hit_rate")


def policy_points(
    prompts: PromptBlocks, request: ReplayRequest, policy: str, capacities: list[int]
) -> list[dict[str, Any]]:
    """Return the hits of a policy at each capacity, one replay each; raises as the policy's replay does."""
    family, variant = resolve_policy(policy)
    points = []
    for capacity in capacities:
        asked = replace(request, capacity_blocks=capacity)
        if family == "prefix":
            # the runs of the trace are shared by all capacities
            answer = prefix_answer(asked, prompts, parse_variant(variant, request.block_size_tokens))
            points.append(share(prompts, answer.hits))
        else:
            result = REPLAYERS[family](asked, variant)
            points.append({name: result[name] for name in _FIGURES if name in result})
    return points
