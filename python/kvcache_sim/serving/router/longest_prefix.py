"""Longest prefix: the machine that has most of the prompt, unless the load is too uneven (semantics 5)."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.in_core import CoreRule, seen_by_core
from kvcache_sim.serving.router.look import FleetLook
from kvcache_sim.serving.router.ties import Ties
from kvcache_sim.serving.sequence import Arrival


class LongestPrefix:
    """The longest found prefix, among the least loaded machines when largest / smallest load > threshold.

    Load is requests not finished. Equal prefixes go to the smaller load, then by ``Ties``.
    """

    needs = Needs(caches=True, engine_loads=True, keys=("load_threshold",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._threshold = view.settings.load_threshold
        self._ties = Ties(len(view.replicas))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the longest found prefix."""
        look, threshold = self._view.look, self._threshold
        if isinstance(look, FleetLook):
            live = self._view.scraped is None
            return look.longest(sequence, threshold, None if live else self._view.loads.requests())
        loads = self._view.loads.requests()
        return self._ties.among(equally_long(look(sequence).found_blocks, loads, threshold))

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core's, where it sees what this one does."""
        return seen_by_core(self._view, "longest-prefix", self._threshold)


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
