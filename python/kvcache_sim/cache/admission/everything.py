"""Everything is admitted."""

from __future__ import annotations

from kvcache_sim.cache.admission.policy import Finished


class AdmitEverything:
    """Keeps all that a request computed."""

    def kept_blocks(self, finished: Finished) -> int:
        """Return all of its blocks."""
        return finished.blocks
