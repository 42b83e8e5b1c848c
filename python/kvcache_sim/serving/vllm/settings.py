"""What vLLM's scheduler is told of the scenario's replica."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.serving.settings import ReplicaSettings


@dataclass(frozen=True, slots=True)
class VllmRules:
    """vLLM's options of the same names; ``watermark_blocks`` stay free at an admission while others run."""

    long_prefill_token_threshold: int
    watermark_blocks: int
    reserve_full_isl: bool
    by_priority: bool
    #: Pipeline stages, as many steps in flight.
    stages: int

    def chunk_tokens(self, budget: int) -> int:
        """Return the most tokens that a chunk of a prompt may have, of a step's ``budget``."""
        return min(self.long_prefill_token_threshold or budget, budget)


def vllm_rules(settings: ReplicaSettings, capacity_blocks: int) -> VllmRules:
    """Return the rules on a pool of so many usable blocks; vLLM counts its null block among the pool's."""
    return VllmRules(
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        watermark_blocks=int(settings.watermark * (capacity_blocks + 1)),
        reserve_full_isl=settings.reserve_full_isl,
        by_priority=settings.queue_order == "priority",
        stages=settings.stages,
    )
