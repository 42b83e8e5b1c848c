"""Priorities by token range with durations, least recent first within one (TensorRT-LLM's config)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked

#: What a block is worth when no range names it, and after its duration (TensorRT-LLM's default).
DEFAULT_PRIORITY = 35


class Priority(Ranked):
    """Ranges are (first block, end, priority 0 to 100, duration in ns or None); the first fit counts."""

    def __init__(self, ranges: list[tuple[int, int, int, int | None]]) -> None:
        super().__init__()
        self.ranges = ranges

    def range_of(self, block: Block) -> tuple[int, int | None]:
        """Return the priority of a block and for how long."""
        for start, end, priority, duration_ns in self.ranges:
            if start <= block.depth < end:
                return priority, duration_ns
        return DEFAULT_PRIORITY, None

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the priority, then the last access."""
        return (self.range_of(block)[0], block.last_access)

    def expire(self, now_ns: int) -> list[Block]:
        """Let priorities fall back; no block leaves."""
        for block in self.by_key.values():
            duration_ns = self.range_of(block)[1]
            if duration_ns is not None and block.last_access_ns + duration_ns <= now_ns:
                self.blocks[block.key] = (DEFAULT_PRIORITY, block.last_access)
        return []


def make(variant: Variant, capacity: int) -> Priority:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Priority(list(variant.ranges))
