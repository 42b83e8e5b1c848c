"""Overlap-weighted cost: prefill against decode, in blocks; the cost of NVIDIA Dynamo's KV router."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.router.ties import Ties
from kvcache_sim.serving.sequence import Arrival


class OverlapCost:
    """The smallest ``overlap_weight`` × prefill blocks + decode blocks; temperature 0: always the smallest.

    Prefill blocks: prompt tokens to compute, of this request and of those sent there that have no first
    token yet, over the block size; and what its blocks on lower tiers lack to be worth as many on the GPU
    (they are loaded while it waits: a quarter of a block of the cpu, three quarters of one of the disk).
    Decode blocks: what running requests hold on the GPU, what those sent there without a first token will
    hold, and what this one adds. Without the second a machine whose queue finds everything on its CPU would
    look idle, and get all that find anything there. Ties by ``Ties``.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ties = Ties(len(view.replicas))
        self._weight = view.settings.overlap_weight

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest cost."""
        view, block = self._view, self._view.block_size_tokens
        look = view.look(sequence)
        new = view.new_prefill_tokens(sequence, look.found_blocks)
        costs = [
            self._weight * ((expected + tokens) / block + lacking)
            + active
            + queued / block
            + -(-tokens // block)
            for expected, queued, tokens, lacking, active in zip(
                view.expected_prefill_tokens(),
                view.queued_tokens(),
                new,
                view.uncredited_blocks(sequence, look.found_blocks),
                look.active_blocks,
                strict=True,
            )
        ]
        chosen = self._ties.least(costs)
        sequence.expected_prefill_tokens = new[chosen]
        return chosen
