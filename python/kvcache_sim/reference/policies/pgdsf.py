"""Prefix-aware GDSF: age + uses × cost of computing it again (RAGCache, Jin et al. 2024)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.gdsf import Gdsf


class Pgdsf(Gdsf):
    """The cost is prefill time per computed block: 1 + its mean context over ``attention_blocks``.

    RAGCache interpolates a measured profile; without a machine the arithmetic of a transformer stands in:
    ``attention_blocks`` is the context at which attending to it costs as much as all else.
    """

    def __init__(self, attention_blocks: float) -> None:
        super().__init__()
        self.attention_blocks = attention_blocks

    def key(self, block: Block) -> tuple[float, ...]:
        """Return age + uses × cost, then the last access."""
        context = block.found_blocks + block.computed_blocks / 2.0
        cost = 1.0 + context / self.attention_blocks
        return (self.age + block.hits * cost, block.last_access)


def make(variant: Variant, capacity: int) -> Pgdsf:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Pgdsf(variant.attention_blocks)
