"""A run that could be reused, and estimates of what loading it and computing the rest would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.values import dataclass


class Part(NamedTuple):
    """A part of the run to reuse: its fastest tier or REMOTE, its blocks, the move still writing it."""

    tier: int
    start: int
    end: int
    by: int
    #: For REMOTE: the owner and the tier there.
    away: tuple[int, int] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it can be read now."""
        return self.by == NO_MOVE


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fetch policy sees. Times are ns from now, estimated from the channels' queues."""

    parts: Sequence[Part]
    #: Leading blocks that are ready to be computed on.
    ready: int
    layers: int
    pipelining: bool
    #: (first layer, last layer) of the KV of the first n blocks.
    arrival_ns: Callable[[int], tuple[int, int]]
    #: Computing everything after the first n blocks.
    compute_ns: Callable[[int], int]

    @property
    def end(self) -> int:
        """The block after the last one found."""
        return self.parts[-1].end

    def done_ns(self, blocks: int) -> int:
        """Return when the prefill should end if the first ``blocks`` are reused (semantics 4)."""
        first, last = self.arrival_ns(blocks)
        compute = self.compute_ns(blocks)
        if not self.pipelining:
            return last + compute
        return max(compute, first + compute, last - (-compute // self.layers))
