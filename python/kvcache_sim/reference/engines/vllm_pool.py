"""vLLM's block pool, block by block: one free queue, keys with duplicates, nothing clever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvcache_sim.replay.block_keys import Key


@dataclass(slots=True)
class VllmPool:
    """``capacity_blocks`` blocks, numbered from 1, that requests hold, share and give back.

    Rules: vLLM 0.33.0, ``vllm/v1/core/block_pool.py`` and ``kv_cache_manager.py`` (watermark 0, one
    full-attention group). Costs grow with the capacity: this is the oracle of the core's pool, not its rival.
    """

    capacity_blocks: int
    #: Blocks without a holder, next to be taken first.
    free: list[int] = field(init=False)
    key_of: dict[int, Key] = field(default_factory=dict)
    #: Blocks of a key; the first inserted answers.
    blocks_of: dict[Key, list[int]] = field(default_factory=dict)
    holders: dict[int, int] = field(init=False)
    #: Blocks of each running request, in order.
    held: dict[int, list[int]] = field(default_factory=dict)
    taken: int = 0
    inserted: int = 0
    evicted: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(range(1, self.capacity_blocks + 1))
        self.holders = dict.fromkeys(self.free, 0)

    def peek(self, keys: Sequence[Key]) -> int:
        """Return how many leading keys have a block; nothing changes."""
        for hits, key in enumerate(keys):
            if key not in self.blocks_of:
                return hits
        return len(keys)

    def allocate(self, request: int, hits: Sequence[Key], blocks: int) -> bool:
        """Hold the blocks of the hit keys and as many new ones as make ``blocks``, or change nothing."""
        hit_blocks = [self.blocks_of[key][0] for key in hits]
        idle_hits = sum(self.holders[b] == 0 for b in hit_blocks)
        if blocks - len(hits) + idle_hits > len(self.free):
            return False
        for block in hit_blocks:
            if self.holders[block] == 0:
                self.free.remove(block)
            self.holders[block] += 1
        self.held[request] = hit_blocks
        return self.extend(request, blocks)

    def extend(self, request: int, blocks: int) -> bool:
        """Take new blocks until the request holds ``blocks``, or change nothing."""
        missing = blocks - len(self.held[request])
        if missing > len(self.free):
            return False
        for _ in range(missing):
            block = self.free.pop(0)
            self.holders[block] = 1
            self.held[request].append(block)
            self.taken += 1
            key = self.key_of.pop(block, None)
            if key is not None:
                self.evicted.append(key)
                self.blocks_of[key].remove(block)
                if not self.blocks_of[key]:
                    del self.blocks_of[key]
        return True

    def cache(self, request: int, keys: Sequence[Key]) -> None:
        """Give the request's leading blocks their keys, where they have none yet."""
        for block, key in zip(self.held[request], keys, strict=False):
            if block not in self.key_of:
                self.key_of[block] = key
                self.blocks_of.setdefault(key, []).append(block)
                self.inserted += 1

    def release(self, request: int) -> None:
        """Let go of all blocks, last to first: those without a key queue in front, the others at the end."""
        front: list[int] = []
        back: list[int] = []
        for block in reversed(self.held.pop(request)):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                (back if block in self.key_of else front).append(block)
        self.free = front + self.free + back

    def free_queue(self) -> list[Key | None]:
        """Return the keys of the free blocks, next to be taken first."""
        return [self.key_of.get(block) for block in self.free]

    def figures(self, label: Callable[[Key | None], str]) -> dict[str, Any]:
        """Return what a replay tells of the pool at its end; ``label`` names a key of the free queue."""
        return {
            "taken": self.taken,
            "inserted": self.inserted,
            "evicted": len(self.evicted),
            "cached_blocks": len(self.key_of),
            "unique_keys": len(self.blocks_of),
            "queue_lines": [label(key) for key in self.free_queue()],
        }
