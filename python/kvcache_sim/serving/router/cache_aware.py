"""Cache-aware: the longest prefix if it is long enough, else the least load; the rule of SGLang's router."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.sequence import Arrival


class CacheAware:
    """The machine that has most of the prompt where that is more than ``cache_threshold`` of its tokens.

    Else, and whatever is cached while loads are too uneven, the machine least in (load, requests sent there,
    number). Load is requests not finished; it is too uneven when the largest is more than
    ``balance_abs_threshold`` requests above the smallest and more than ``balance_rel_threshold`` times it. Of
    machines with equally much of the prompt the least loaded takes it, counted the same way.

    Source: ``cache_aware`` of sgl-model-gateway (cache_aware.rs at b93974f1) and of lightseekorg/smg at
    73da68ca9, classic form. There a tree of what was sent stands for what the machines have, and of several
    that were sent a prefix the first to be sent it is asked; here the router sees what they have, or what its
    own index holds.
    Cost: one look at all machines, none where loads are uneven.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._settings = view.settings
        #: Requests sent to each machine so far.
        self._sent = [0] * len(view.replicas)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine by prefix or by load."""
        loads = self._view.requests()
        candidates: Sequence[int] = range(len(loads))
        if not self._uneven(loads):
            found = self._view.look(sequence).found_blocks
            longest = max(found)
            share = longest * self._view.block_size_tokens / sequence.prompt_num_tokens
            if share > self._settings.cache_threshold:
                candidates = [machine for machine, blocks in enumerate(found) if blocks == longest]
        chosen = min(candidates, key=lambda machine: (loads[machine], self._sent[machine], machine))
        self._sent[chosen] += 1
        return chosen

    def _uneven(self, loads: Sequence[int]) -> bool:
        least, most = min(loads), max(loads)
        settings = self._settings
        return most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least
