"""The recency policy of vLLM's CPU offloading tier, key by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from kvcache_sim.reference.engines.offload_access import Access
from kvcache_sim.replay.block_keys import Key


@dataclass(slots=True)
class OffloadLru:
    """Keys in one queue, least recent first (vLLM 0.33.0, ``kv_offload/cpu/policies/lru.py``)."""

    capacity_blocks: int
    queue: OrderedDict[Key, None] = field(default_factory=OrderedDict)

    def __contains__(self, key: Key) -> bool:
        return key in self.queue

    def __len__(self) -> int:
        return len(self.queue)

    def offer(self, keys: Sequence[Key]) -> None:
        """Learn what is about to be stored: recency does not care."""

    def store(self, new: Sequence[Key], protected: set[Key]) -> list[Key] | None:
        """Insert the keys and return those evicted for them, or None (and no change) without room."""
        shortfall = max(0, len(self.queue) + len(new) - self.capacity_blocks)
        victims = list(islice((key for key in self.queue if key not in protected), shortfall))
        if len(victims) < shortfall:
            return None
        for key in victims:
            del self.queue[key]
        self.queue.update(dict.fromkeys(new))
        return victims

    def access(self, keys: Sequence[Key]) -> None:
        """Make the keys of a running request the most recent, the first of them last."""
        for key in reversed(keys):
            if key in self.queue:
                self.queue.move_to_end(key)

    def finish(self, used: Sequence[tuple[Key, Access]]) -> None:
        """Make the request's keys the most recent, the first of them last."""
        self.access([key for key, _ in used])

    def sizes(self) -> dict[str, int | float]:
        """Return nothing: the queue's length is what was stored less what was evicted."""
        return {}
