"""Longest prefix: the machine that has most of the prompt, unless the load is too uneven (semantics 5)."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.sequence import SequenceState


class LongestPrefix:
    """The longest found prefix, among the least loaded machines when largest / smallest load > threshold.

    Load is requests not finished. Ties go to the smaller load, then to the lower number. Without a threshold
    the load is never looked at: where all prompts begin alike, the first machine that has the beginning gets
    everything.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._threshold = view.settings.load_threshold

    def choose(self, sequence: SequenceState) -> int:
        """Return the machine with the longest found prefix."""
        found = self._view.look(sequence).found_blocks
        if self._threshold is None:
            return found.index(max(found))
        loads = self._view.requests()
        least = min(loads)
        candidates = range(len(loads))
        if max(loads) > self._threshold * least:
            return min((m for m in candidates if loads[m] == least), key=lambda m: (-found[m], m))
        return min(candidates, key=lambda m: (-found[m], loads[m], m))
