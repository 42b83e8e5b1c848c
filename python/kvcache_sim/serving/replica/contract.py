"""The interface of a replica for measurements, of the core or of the specification."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.moved import MovedBytes
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.serving.settings import ReplicaSettings


class Load(Protocol):
    """The requests that were sent to a machine and are not finished."""

    @property
    def requests(self) -> int:
        """Unfinished requests that were routed here."""
        ...

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens routed or handed over to here that are not computed yet."""
        ...

    @property
    def expected_prefill_tokens(self) -> int:
        """Queued tokens that the router expected to be computed."""
        ...


class MeasuredReplica(Protocol):
    """One engine instance, as measurements read it."""

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
        """Its load, as routers see it."""
        ...

    @property
    def moved(self) -> MovedBytes:
        """Bytes that it moved between tiers."""
        ...

    @property
    def prefetched_blocks(self) -> int | None:
        """Blocks prefetched so far; None: it does not prefetch."""
        ...

    @property
    def steps(self) -> int:
        """Iterations so far."""
        ...

    def duplicates(self, tier: int) -> int:
        """Return the number of a lower tier's blocks that also have a copy on a faster tier."""
        ...

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before ``now_ns``, so that the store is up to date."""
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
