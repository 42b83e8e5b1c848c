"""Overlap-weighted cost: prefill against decode, in blocks; the cost of NVIDIA Dynamo's KV router."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.sequence import SequenceState


class OverlapCost:
    """The smallest ``overlap_weight`` × prefill blocks + decode blocks; temperature 0: always the smallest.

    Prefill blocks: prompt tokens to compute, of this request and of those sent there that have no first
    token yet, over the block size. Decode blocks: what running requests hold on the GPU, and what this one
    adds. Ties go to the lower number.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._weight = view.settings.overlap_weight

    def choose(self, sequence: SequenceState) -> int:
        """Return the machine with the smallest cost."""
        view, block = self._view, self._view.block_size_tokens
        look = view.look(sequence)
        new = view.new_prefill_tokens(sequence, look.found_blocks)
        costs = [
            self._weight * (replica.expected_prefill_tokens + tokens) / block + active + -(-tokens // block)
            for replica, tokens, active in zip(view.replicas, new, look.active_blocks, strict=True)
        ]
        chosen = costs.index(min(costs))
        sequence.expected_prefill_tokens = new[chosen]
        return chosen
