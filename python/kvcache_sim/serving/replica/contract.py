"""What measurements read of a replica, of the core or of the specification."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.moved import MovedBytes
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.serving.settings import ReplicaSettings


class Load(Protocol):
    """The requests that were sent to a machine and are not finished."""

    @property
    def requests(self) -> int:
        """Requests routed here that are not finished."""
        ...

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens routed here that are not computed yet, and those of requests handed over to here."""
        ...

    @property
    def expected_prefill_tokens(self) -> int:
        """Of the queued tokens, those that the router expected to be computed."""
        ...


class MeasuredReplica(Protocol):
    """One engine instance as measurements see it."""

    machine: int
    settings: ReplicaSettings
    #: Number of the machine's tiers.
    tiers: int

    @property
    def store(self) -> GpuStore:
        """The store of its blocks."""
        ...

    @property
    def load(self) -> Load:
        """What routers may know of it."""
        ...

    @property
    def moved(self) -> MovedBytes:
        """Bytes that it moved."""
        ...

    @property
    def prefetched_blocks(self) -> int | None:
        """Blocks brought up ahead of their requests so far; None: it does not bring any."""
        ...

    @property
    def steps(self) -> int:
        """Iterations so far."""
        ...

    def duplicates(self, tier: int) -> int:
        """Return the number of a lower tier's blocks that have a copy on a faster one too."""
        ...

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before now, so that the store is as it is now."""
        ...

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of requests that wait, run and wait for KV, and the tokens generated so far."""
        ...

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return decode steps with drafts, tokens drafted, and tokens accepted by position."""
        ...

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens: edges, counts, count, sum, min, max."""
        ...
