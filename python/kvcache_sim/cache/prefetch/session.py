"""Session-aware prefetching: a paused session's blocks come up before its next turn (CachedAttention)."""

from __future__ import annotations

from kvcache_sim.cache.prefetch.policy import Candidate


class PrefetchSession:
    """Brings up all of it ``prefetch.lead`` before the turn."""

    occasions: tuple[str, ...] = ("session",)

    def blocks(self, candidate: Candidate) -> int:
        """Return all blocks that may hit."""
        return candidate.blocks
