"""The leases of an engine's store: each is one request's, from its look-up until its blocks are let go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvcache_sim.reference.store.refusals import HANDLES, refuse


@dataclass(slots=True)
class EngineLease:
    """What a request has in an engine's store: what it found is held once its room is reserved."""

    request: int
    hits: int
    is_admitted: bool = False


class EngineLeases:
    """The leases given out, one a request at a time; refusals in the words of the native stores."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self._given: dict[int, EngineLease] = {}

    def known_request(self, request: int) -> None:
        """Refuse a request that the trace does not have."""
        if request >= self.requests:
            raise refuse("no such request", f"0 to {self.requests - 1}")

    def give(self, request: int, hits: int, found: Callable[[int, int], int]) -> int:
        """Return a new lease on the first ``hits`` blocks; ``found``: how much of a request's is there."""
        self.known_request(request)
        if any(lease.request == request for lease in self._given.values()):
            raise refuse("the request has a lease", "one lease a request at a time")
        if found(request, hits) < hits:
            raise _not_found()
        handle = next(HANDLES)
        self._given[handle] = EngineLease(request, hits)
        return handle

    def get(self, lease: int) -> EngineLease:
        """Return a lease; refuse what is none, or none any more."""
        if lease not in self._given:
            raise refuse("no such lease", "one that is held")
        return self._given[lease]

    def admitted(self, lease: int) -> EngineLease:
        """Return a lease whose first room was reserved."""
        held = self.get(lease)
        if not held.is_admitted:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        return held

    def asked(
        self, wanted: list[tuple[int, int]], found: Callable[[int, int], int]
    ) -> list[tuple[EngineLease, int]]:
        """Return what a reservation asks for: a first one comes alone, and what it found is still there."""
        if len(wanted) != 1:
            return [(self.admitted(lease), blocks) for lease, blocks in wanted]
        [(lease, blocks)] = wanted
        held = self.get(lease)
        if not held.is_admitted and found(held.request, held.hits) < held.hits:
            raise _not_found()
        return [(held, blocks)]

    def end(self, lease: int) -> EngineLease:
        """End a lease and return what it was."""
        held = self.get(lease)
        del self._given[lease]
        return held

    def abandon(self, lease: int) -> None:
        """End a lease that has reserved nothing."""
        if self.get(lease).is_admitted:
            raise refuse("blocks are reserved", "a lease without a reservation; release it")
        self.end(lease)


def gpu_alone(tier: int) -> None:
    """Refuse every tier but the GPU."""
    if tier:
        raise refuse("no such tier", "0 to 0")


def _not_found() -> Exception:
    return refuse("blocks are not found", "a path of which every block is in the trie")
