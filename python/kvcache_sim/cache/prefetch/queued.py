"""Prefetching while queued: what a request would read from below the cpu comes up while it waits."""

from __future__ import annotations

from kvcache_sim.cache.prefetch.policy import Candidate


class PrefetchQueued:
    """Brings up all of it when the request arrives."""

    occasions: tuple[str, ...] = ("queued",)

    def blocks(self, candidate: Candidate) -> int:
        """Return all blocks that may hit."""
        return candidate.blocks
