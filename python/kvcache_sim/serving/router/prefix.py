"""Routers that weigh what of the prompt each machine has against its load (semantics 5)."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.serving.router.contract import Needs
from kvcache_sim.serving.router.in_core import CoreRule, seen_by_core
from kvcache_sim.serving.router.look import FleetLook
from kvcache_sim.serving.router.plain import Tied
from kvcache_sim.serving.sequence import Arrival


class LongestPrefix(Tied):
    """The longest found prefix, among the least loaded machines when largest / smallest load > threshold.

    Load is requests not finished. Equal prefixes go to the smaller load, then by ``Ties``.
    """

    needs = Needs(caches=True, engine_loads=True, keys=("load_threshold",))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the longest found prefix."""
        look, threshold = self._view.look, self._view.settings.load_threshold
        if isinstance(look, FleetLook):
            live = self._view.scraped is None
            return look.longest(sequence, threshold, None if live else self._view.loads.requests())
        loads = self._view.loads.requests()
        return self._ties.among(equally_long(look(sequence).found_blocks, loads, threshold))

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core's, where it sees what this one does."""
        return seen_by_core(self._view, "longest-prefix", self._view.settings.load_threshold)


def equally_long(found: Sequence[int], loads: Sequence[int], threshold: float) -> list[int]:
    """Return the machines with the longest prefix and, of these, the smallest load: candidates are all.

    When the largest load is above ``threshold`` times the smallest, candidates are the least loaded. The
    native core does the same over machines of its own.
    """
    least = min(loads)
    candidates: Sequence[int] = range(len(loads))
    if max(loads) > threshold * least:
        candidates = [m for m, load in enumerate(loads) if load == least]
    longest = max([found[m] for m in candidates])
    candidates = [m for m in candidates if found[m] == longest]
    least = min([loads[m] for m in candidates])
    return [m for m in candidates if loads[m] == least]


class PrefillCost(Tied):
    """The smallest (prompt tokens not found there) × (requests there, this one included).

    Ties by ``Ties``.
    """

    needs = Needs(caches=True, engine_loads=True)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest product."""
        new = self._view.new_prefill_tokens(sequence, self._view.look(sequence).found_blocks)
        costs = [tokens * (load + 1) for tokens, load in zip(new, self._view.loads.requests(), strict=True)]
        return self._ties.least(costs)

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core's, where it sees what this one does."""
        return seen_by_core(self._view, "prefill-cost", self._view.block_size_tokens)


class OverlapCost(Tied):
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

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest cost."""
        view, block, weight = self._view, self._view.block_size_tokens, self._view.settings.overlap_weight
        look = view.look(sequence)
        new = view.new_prefill_tokens(sequence, look.found_blocks)
        lacking = view.uncredited_blocks(sequence, look.found_blocks)
        costs = [
            weight * ((expected + tokens) / block + lacks) + active + -(-tokens // block)
            for expected, tokens, lacks, active in zip(
                view.expected_prefill_tokens(), new, lacking, look.active_blocks, strict=True
            )
        ]
        chosen = self._ties.least(costs)
        sequence.expected_prefill_tokens = new[chosen] + round(lacking[chosen] * block)
        return chosen
