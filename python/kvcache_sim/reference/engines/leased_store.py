"""What the stores of engines do alike, in plain Python: look-ups, leases taken and given back, evictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import groupby

from kvcache_sim.cache.digest import EVICT
from kvcache_sim.cache.store import Losses, Room
from kvcache_sim.reference.engines.leases import EngineLeases, gpu_alone
from kvcache_sim.reference.records import Recorded
from kvcache_sim.reference.store.refusals import numbered
from kvcache_sim.tiers import COMPUTE


class LeasedStore(Recorded, ABC):
    """A store that finds, holds and takes room in its own way; the GPU tier is the only one."""

    leases: EngineLeases

    @abstractmethod
    def _found(self, request: int, limit: int) -> int:
        """Return how many of a request's first ``limit`` blocks are found."""

    @numbered
    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found; all of them are ready."""
        self.leases.known_request(request)
        found = self._found(request, limit)
        return found, found

    @numbered
    def acquire(self, request: int, depth: int) -> int:
        """Note what a request found; it is held with its room."""
        return self.leases.give(request, depth, self._found)

    @numbered
    def abandon(self, lease: int) -> None:
        """Take an acquisition back; nothing was held."""
        self.leases.abandon(lease)

    @numbered
    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Hold what was found and take room, or take more room; None without effect when refused."""
        return self.reserve_many([(lease, blocks)], now_ns)

    @abstractmethod
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take room for several leases, all or nothing."""

    @numbered
    def room(self, tier: int) -> Room:
        """Return how the blocks of the GPU are used."""
        gpu_alone(tier)
        return self._gpu_room()

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) blocks."""
        gpu_alone(tier)
        return Losses(self._gpu_evicted(), 0, 0)

    @abstractmethod
    def _gpu_room(self) -> Room:
        """Return how the blocks of the GPU are used."""

    @abstractmethod
    def _gpu_evicted(self) -> int:
        """Return how many blocks the GPU has lost so far."""

    def _note_evicted(self, blocks: int, now_ns: int, tier: int = COMPUTE) -> None:
        if blocks:
            self._digest.record(EVICT, now_ns, tier, blocks)
            self._log_eviction(now_ns, tier, blocks)


def in_parts(places: Iterable[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Return a prompt's found blocks, each (tier, move writing it), as (tier, first, past the last, move)."""
    parts, start = list[tuple[int, int, int, int]](), 0
    for (tier, move), run in groupby(places):
        end = start + len(list(run))
        parts.append((tier, start, end, move))
        start = end
    return parts
