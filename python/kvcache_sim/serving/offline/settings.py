"""Settings of offline batches."""

from __future__ import annotations

from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """How a trace is worked off; its arrivals count for nothing."""

    #: Requests of a batch.
    batch_requests: int
    #: From the end of a batch until the next begins.
    pause_ns: int = 0
    #: Whether the caches are emptied when a batch has ended.
    flush: bool = True
