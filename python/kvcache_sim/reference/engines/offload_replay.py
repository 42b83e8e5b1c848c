"""Requests one after another against the reference of vLLM's CPU offloading tier."""

from __future__ import annotations

from typing import Any

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.engines.requests import Requests


def replay_offload_reference(
    requests: Requests, variant: str, capacity_blocks: int, store_threshold: int
) -> dict[str, Any]:
    """Replay every request and return what ``_core.EngineRequests.offload`` returns."""
    tier, causes = OffloadTier(variant, capacity_blocks, store_threshold), MissCauses(requests.block_size)
    hits: list[int] = []
    for request, n in enumerate(requests.input_tokens):
        prompt = requests.prompt(request)
        askable = prompt[: requests.limit(request)]
        found = tier.leading(askable)
        hits.append(found * requests.block_size)
        causes.count(n, askable, found, tier.policy.__contains__)
        causes.learn(prompt)
        done = tier.offer(request, range(len(prompt)), prompt)
        if done is not None:
            causes.evict(request, done[1])
        tier.finish(request)
    return {
        "hits": hits,
        "stored": tier.stored,
        "evicted": tier.evicted,
        "refused": tier.refused,
        "arc": tier.policy.sizes(),
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
