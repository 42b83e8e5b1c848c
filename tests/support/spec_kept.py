"""The specification with finished requests that do not leave all their blocks, which no seed asks for.

Admission keeps all blocks, or those of the prompt alone; ``discard_on_finish`` keeps none.
"""

from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.scheduler import Scheduler


def discards(settings: ClusterSettings) -> bool:
    """Return True if settings need this model."""
    return settings.cache.admission == "prompt" or settings.cache.discard_on_finish


class KeepingScheduler(Scheduler):
    """A scheduler that discards what the cache does not admit."""

    def release(self, s: SequenceState, lease: int, now: int) -> None:
        cache, depth = self.cache, self.store.depth(lease)
        super().release(s, lease, now)
        if cache.accounting == "detailed":
            keeps = cache.admission == "all" and not cache.discard_on_finish
            kept = 0 if cache.discard_on_finish else s.prompt_num_tokens // cache.block_size_tokens
            if not keeps:
                self.store.discard(s.request, min(kept, depth), depth)
