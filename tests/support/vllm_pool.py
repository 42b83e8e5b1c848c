"""A small model of vLLM's block pool, block by block: one free queue, keys with duplicates; and replays over it.

Rules: vLLM 0.33.0, ``vllm/v1/core/block_pool.py`` and ``kv_cache_manager.py`` (watermark 0, one full-attention group).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvcache_sim.replay.block_keys import Key
from kvcache_sim.replay.engine_requests import block_keys, total_tokens
from kvcache_sim.replay.request import REJECTED, ReplayRequest

from support.miss_causes import CAUSES, MissCauses


@dataclass(slots=True)
class VllmPool:
    """Blocks, numbered from 1, that requests hold, share and release."""

    capacity_blocks: int
    #: Unused blocks, next to be taken first.
    free: list[int] = field(init=False)
    key_of: dict[int, Key] = field(default_factory=dict)
    #: Blocks of a key; the first inserted answers.
    blocks_of: dict[Key, list[int]] = field(default_factory=dict)
    users: dict[int, int] = field(init=False)
    #: Blocks of each running request, in order.
    held: dict[int, list[int]] = field(default_factory=dict)
    taken: int = 0
    inserted: int = 0
    evicted: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(range(1, self.capacity_blocks + 1))
        self.users = dict.fromkeys(self.free, 0)

    def peek(self, keys: Sequence[Key]) -> int:
        """Return how many leading keys have a block; nothing changes."""
        for hits, key in enumerate(keys):
            if key not in self.blocks_of:
                return hits
        return len(keys)

    def allocate(self, request: int, hits: Sequence[Key], blocks: int) -> bool:
        """Hold the blocks of the hit keys and as many new ones as make ``blocks``, or change nothing."""
        hit_blocks = [self.blocks_of[key][0] for key in hits]
        idle_hits = sum(self.users[b] == 0 for b in hit_blocks)
        if blocks - len(hits) + idle_hits > len(self.free):
            return False
        for block in hit_blocks:
            if self.users[block] == 0:
                self.free.remove(block)
            self.users[block] += 1
        self.held[request] = hit_blocks
        return self.extend(request, blocks)

    def extend(self, request: int, blocks: int) -> bool:
        """Take new blocks until the request holds ``blocks``, or change nothing."""
        missing = blocks - len(self.held[request])
        if missing > len(self.free):
            return False
        for _ in range(missing):
            block = self.free.pop(0)
            self.users[block] = 1
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
        """Release all blocks, last to first: those without a key go to the front, the others at the end."""
        front: list[int] = []
        back: list[int] = []
        for block in reversed(self.held.pop(request)):
            self.users[block] -= 1
            if self.users[block] == 0:
                (back if block in self.key_of else front).append(block)
        self.free = front + self.free + back

    def free_queue(self) -> list[Key | None]:
        """Return the keys of the free blocks, next to be taken first."""
        return [self.key_of.get(block) for block in self.free]


def replay(request: ReplayRequest) -> tuple[VllmPool, MissCauses, list[int], int]:
    """Return the pool at the end, the causes of misses, hit tokens by request, and requests ended early."""
    pool, causes = VllmPool(request.capacity_blocks), MissCauses(request.block_size_tokens)
    keys, size = block_keys(request), request.block_size_tokens
    running: deque[int] = deque()
    hits: list[int] = []
    forced = 0

    def with_space(attempt: Callable[[], bool]) -> bool:
        nonlocal forced
        while not attempt():
            if not running:
                return False
            pool.release(running.popleft())
            forced += 1
        return True

    ends = zip(request.trace.input_tokens.tolist(), total_tokens(request).tolist(), strict=True)
    for i, (prompt, total) in enumerate(ends):
        if request.window and len(running) == request.window:
            pool.release(running.popleft())
        askable, whole = keys.keys(i, (prompt - 1) // size), keys.keys(i, total // size)
        found, before = askable[: pool.peek(askable)], len(pool.evicted)
        causes.count(prompt, askable, len(found), pool.blocks_of.__contains__)
        causes.learn(whole)
        fits = with_space(lambda: pool.allocate(i, found, -(-prompt // size)))  # noqa: B023
        if fits:
            pool.cache(i, keys.keys(i, prompt // size))
            fits = with_space(lambda: pool.extend(i, -(-total // size)))  # noqa: B023
        left = [key for key in pool.evicted[before:] if key not in pool.blocks_of]
        causes.evicted_by.update(dict.fromkeys(left, i))
        if fits:
            pool.cache(i, whole)
            hits.append(len(found) * size)
            running.append(i)
        else:
            causes.tokens[-1] = [0] * len(CAUSES)  # a rejected request neither hits nor misses
            hits.append(REJECTED)
        if (not fits and i in pool.held) or (fits and not request.window):
            pool.release(running.pop() if fits else i)
    while running:
        pool.release(running.popleft())
    return pool, causes, hits, forced
