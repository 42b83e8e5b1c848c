"""Cache-aware: the longest prefix if it is long enough, else the least load; the rule of SGLang's router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.gateway_tree import GatewayTree
from kvcache_sim.serving.sequence import Arrival

#: Size of the gateway's tree, in characters or tokens of a machine (``--max-tree-size``).
MOST_TREE_TOKENS = 1 << 26


class CacheAware:
    """The machine that has most of the prompt where that is more than ``cache_threshold`` of its tokens.

    Else, and whatever is cached while loads are too uneven, the machine least in (load, requests sent there,
    number). Load is requests not finished; it is too uneven when the largest is more than
    ``balance_abs_threshold`` requests above the smallest and more than ``balance_rel_threshold`` times it. Of
    machines with equally much of the prompt the least loaded takes it, counted the same way.

    With ``index.kind: truth`` the router sees what machines have, or what its late index holds. With
    ``gateway-tree`` it has the gateway's own tree of what it sent (``gateway_tree``), which asks the first to
    be sent a prefix and never sees an eviction; it is cut back to ``index_blocks`` a machine, left out: 2²⁶
    tokens, every ``index.eviction_interval``.

    Source: ``cache_aware`` of sgl-model-gateway (cache_aware.rs at b93974f1) and of lightseekorg/smg at
    73da68ca9, classic form.
    Cost: one look at all machines, none where loads are uneven; O(ids of the prompt) with the tree.
    """

    needs = Needs(
        caches=True,
        keys=("cache_threshold", "balance_abs_threshold", "balance_rel_threshold"),
        own_index="gateway-tree",
    )

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._settings = view.settings
        by_tree = view.settings.index_kind == "gateway-tree"
        self._cached: _Cached = _Sent(view) if by_tree else _Found(view)
        #: Requests sent to each machine so far.
        self._sent = [0] * len(view.replicas)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine by prefix or by load."""
        loads = self._view.requests()
        candidates: Sequence[int] = range(len(loads))
        if not self._uneven(loads):
            share, machines = self._cached.best(sequence)
            if share > self._settings.cache_threshold:
                candidates = machines
        chosen = min(candidates, key=lambda machine: (loads[machine], self._sent[machine], machine))
        self._cached.sent(sequence, chosen)
        self._sent[chosen] += 1
        return chosen

    def _uneven(self, loads: Sequence[int]) -> bool:
        least, most = min(loads), max(loads)
        settings = self._settings
        return most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least


class _Cached(Protocol):
    """Says who has most of a prompt, and how much."""

    def best(self, sequence: Arrival) -> tuple[float, Sequence[int]]:
        """Return the share of the prompt's tokens, and the machines."""
        ...

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Hear the choice."""
        ...


class _Found:
    """By what a look finds."""

    def __init__(self, view: RouterView) -> None:
        self._view = view

    def best(self, sequence: Arrival) -> tuple[float, Sequence[int]]:
        """Return the largest share and all machines that have it."""
        found = self._view.look(sequence).found_blocks
        longest = max(found)
        share = longest * self._view.block_size_tokens / sequence.prompt_num_tokens
        return share, [machine for machine, blocks in enumerate(found) if blocks == longest]

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Do nothing: the next look sees it."""


class _Sent:
    """By the gateway's tree of what was sent."""

    def __init__(self, view: RouterView) -> None:
        assert view.prompts is not None
        self._view, self._prompts = view, view.prompts
        self._tree = GatewayTree(len(view.replicas))
        blocks = view.settings.index_blocks
        tokens = MOST_TREE_TOKENS if blocks is None else blocks * view.block_size_tokens
        self._most_ids = tokens // view.prompts.id_tokens
        self._interval_ns = view.settings.index_eviction_interval_ns
        self._cut_back = 0

    def best(self, sequence: Arrival) -> tuple[float, Sequence[int]]:
        """Return the share that was sent anywhere, and the one machine that the tree asks."""
        self._keep_to_size()
        match = self._tree.match(self._prompts.ids(sequence))
        tokens = min(match.ids * self._prompts.id_tokens, sequence.prompt_num_tokens)
        return tokens / sequence.prompt_num_tokens, [match.machine]

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Insert the prompt."""
        self._keep_to_size()
        self._tree.insert(self._prompts.ids(sequence), machine)

    def _keep_to_size(self) -> None:
        """Evict once where an interval has ended: nothing changed the tree since."""
        intervals = self._view.now_ns() // self._interval_ns
        if intervals > self._cut_back:
            self._cut_back = intervals
            self._tree.evict(self._most_ids)
