"""Overlap-weighted cost: prefill against decode, in blocks; the cost of NVIDIA Dynamo's KV router."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.ties import Ties
from kvcache_sim.serving.sequence import Arrival


class OverlapCost:
    """The smallest ``overlap_weight`` × prefill blocks + decode blocks; temperature 0: always the smallest.

    Prefill blocks, of this request and of those sent there that have no first token yet: prompt tokens to
    compute over the block size, and what its blocks on lower tiers lack to be worth as many on the GPU (they
    are loaded while it waits: a quarter of a block of the cpu, three quarters of one of the disk). Without
    the loads of those that wait, a machine whose queue finds everything on its CPU would look idle, and get
    all that find anything there. Decode blocks: what running requests hold on the GPU, and what this one
    adds. What the queue finds on the GPU counts nothing: prompts that share a prefix would count it once
    each, and sessions would leave the machine that has theirs. Ties by ``Ties``.
    """

    needs = Needs(caches=True, keys=("overlap_weight",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ties = Ties(len(view.replicas))
        self._weight = view.settings.overlap_weight

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest cost."""
        view, block = self._view, self._view.block_size_tokens
        look = view.look(sequence)
        new = view.new_prefill_tokens(sequence, look.found_blocks)
        lacking = view.uncredited_blocks(sequence, look.found_blocks)
        costs = [
            self._weight * ((expected + tokens) / block + lacks) + active + -(-tokens // block)
            for expected, tokens, lacks, active in zip(
                view.expected_prefill_tokens(), new, lacking, look.active_blocks, strict=True
            )
        ]
        chosen = self._ties.least(costs)
        sequence.expected_prefill_tokens = new[chosen] + round(lacking[chosen] * block)
        return chosen
