"""What a cluster, routers and observers ask of a replica, native or in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.prefetch.policy import Prefetches
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.engine import Engine
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import ReplicaSettings


class Load(Protocol):
    """What was sent to a machine and is not done."""

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


class AnyReplica(Protocol):
    """One engine instance: serves requests from one machine's cache."""

    machine: int
    settings: ReplicaSettings
    cache: CacheSettings
    store: GpuStore
    mover: Mover
    engine: Engine
    prefetcher: Prefetches | None
    remote: RemoteReads | None
    #: How many tiers the machine has.
    tiers: int
    #: Whether every milestone is recorded, beside each request's row.
    records_all: bool

    @property
    def load(self) -> Load:
        """What routers may know of it; an attribute, which routers read of every machine."""
        ...

    def arrive(self, arrival: Arrival) -> None:
        """Take a request over."""
        ...

    def abort(self, request: int) -> int | None:
        """Let a request go that was sent here, its client having given it up.

        Return the decode machine that is to be told, None where there is none.
        """
        ...

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens."""
        ...

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before now, so that the store is as it is now."""
        ...

    def run_ahead(self) -> None:
        """Let it do at once all that comes before anything but machines' own work: nobody waits to hear."""
        ...

    def prefetch(self, request: int, tokens: int, occasion: str) -> None:
        """Copy a request's blocks up to the cpu, where the prefetch policy wants that on this occasion."""
        ...

    @property
    def prefetches_sessions(self) -> bool:
        """Whether a paused session's blocks may be copied up before its next turn."""
        ...

    def when_closed(self, tell: Callable[[int], None]) -> None:
        """Tell the number of each request that leaves this machine from now on."""
        ...

    def when_prefilled(self, tell: Callable[[int, int], None]) -> None:
        """Tell of each request whose prompt is computed from now on: its number and its prompt's tokens."""
        ...

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many requests wait, run and wait for KV, and the tokens generated so far."""
        ...

    @property
    def steps(self) -> int:
        """Iterations so far."""
        ...

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return decode steps with drafts, tokens drafted, and tokens accepted by position."""
        ...

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens: edges, counts, count, sum, min, max."""
        ...

    def flush_records(self) -> None:
        """Hand what is kept of finished requests, steps and evictions to the recorder."""
        ...
