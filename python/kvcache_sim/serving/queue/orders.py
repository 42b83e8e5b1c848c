"""The orders of admission that look at the cache or at the request."""

from __future__ import annotations

from kvcache_sim.serving.queue.order import Waiting


class LongestPrefix:
    """The longest cached prefix first (SGLang's lpm)."""

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return minus the cached tokens."""
        return (-waiting.cached_tokens,)


class ShortestFirst:
    """The fewest tokens left to compute first."""

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return the tokens to compute."""
        return (waiting.tokens - waiting.cached_tokens,)


class Priority:
    """The trace's priorities, the smallest first, then the earliest arrival."""

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return (priority, arrival)."""
        return (waiting.priority, waiting.arrival_ns)


class LaterTurns:
    """Sessions under way before new ones, the further on the earlier."""

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return minus the turn."""
        return (-waiting.turn,)


class RagCache:
    """Most cached tokens a computed one first, passed ``window`` times before all (RAGCache)."""

    def __init__(self, window: int = 32) -> None:
        self.window = window

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return (not starved, minus the ratio)."""
        computed = max(waiting.tokens - waiting.cached_tokens, 1)
        return (float(waiting.passed < self.window), -waiting.cached_tokens / computed)
