"""Recency of vLLM's offloading tier by rank: a request's keys share one rank, whatever ends meanwhile."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvcache_sim.reference.engines.offload_access import Access
from kvcache_sim.replay.block_keys import Key

Rank = tuple[int, int]


@dataclass(slots=True)
class RankedLru:
    """Keys with ranks, the smallest evicted first (vLLM 0.33.0, ``kv_offload/cpu/policies/lru.py``).

    A request takes a rank at its first access; its keys get it, later places first, and each a rank of
    its own at the request's end. ``heap`` has every rank given; those no longer held are passed over.
    """

    capacity_blocks: int
    ranks: dict[Key, Rank] = field(default_factory=dict)
    heap: list[tuple[Rank, Key]] = field(default_factory=list)
    of_request: dict[int, int] = field(default_factory=dict)
    last: int = 0

    def __contains__(self, key: Key) -> bool:
        return key in self.ranks

    def __len__(self) -> int:
        return len(self.ranks)

    def offer(self, keys: Sequence[Key]) -> None:
        """Learn what is about to be stored: recency does not care."""

    def access(self, keys: Sequence[Key]) -> None:
        """Learn the keys of a running request: ``accessed`` ranks them."""

    def accessed(self, request: int, used: Mapping[int, tuple[Key, Access]]) -> None:
        """Give the keys that a request has used, by place, the request's rank where theirs is lower."""
        if request not in self.of_request:
            self.last += 1
            self.of_request[request] = self.last
        for place, (key, _) in used.items():
            rank = self.of_request[request], -place
            if key in self.ranks and self.ranks[key] < rank:
                self._give(key, rank)

    def store(self, new: Sequence[Key], protected: set[Key]) -> list[Key] | None:
        """Insert the keys and return those evicted for them, or None (and no change) without room."""
        shortfall = max(0, len(self.ranks) + len(new) - self.capacity_blocks)
        victims, passed = dict[Key, Rank](), list[tuple[Rank, Key]]()
        while len(victims) < shortfall and self.heap:
            rank, key = heapq.heappop(self.heap)
            if self.ranks.get(key) != rank or key in victims:
                continue
            if key in protected:
                passed.append((rank, key))
            else:
                victims[key] = rank
        is_refused = len(victims) < shortfall
        if is_refused:
            passed += [(rank, key) for key, rank in victims.items()]
        for entry in passed:
            heapq.heappush(self.heap, entry)
        if is_refused:
            return None
        for key in victims:
            del self.ranks[key]
        self.ranks.update(dict.fromkeys(new, (0, 0)))
        return list(victims)

    def finish(self, used: Sequence[tuple[Key, Access]]) -> None:
        """Make the request's keys the most recent, the first of them last."""
        for key, _ in reversed(used):
            if key in self.ranks:
                self.last += 1
                self._give(key, (self.last, 0))

    def sizes(self) -> dict[str, int | float]:
        """Return nothing: the queue's length is what was stored less what was evicted."""
        return {}

    def _give(self, key: Key, rank: Rank) -> None:
        self.ranks[key] = rank
        heapq.heappush(self.heap, (rank, key))
