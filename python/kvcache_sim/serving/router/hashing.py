"""A ring of hashes, and consistent hashing with bounded load: a key leaves a machine that has too much."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b

from kvcache_sim.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival

#: Places of one machine on the ring (hash_ring.rs of lightseekorg/smg at 73da68ca9).
PLACES = 150


def position(text: str) -> int:
    """Return the place of a text on the ring: the first 8 bytes of its BLAKE2b, little-endian."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class HashRing:
    """Machines at ``PLACES`` places each of a ring of 2⁶⁴; a key belongs to the first place from its own on.

    Gateways hash the addresses of their workers, which a simulation has not: ``machine k`` stands for them,
    so that shares and spills are theirs and single assignments are not.
    """

    def __init__(self, machines: int) -> None:
        places = [(position(f"machine {m}#{i}"), m) for m in range(machines) for i in range(PLACES)]
        places.sort()
        self._positions = [place for place, _ in places]
        self._owners = [machine for _, machine in places]

    def owner(self, key: str) -> int:
        """Return the machine of a key."""
        return self._owners[bisect_left(self._positions, position(key)) % len(self._owners)]

    def clockwise(self, key: str) -> Iterator[int]:
        """Yield the machine of a key and those behind it, each once."""
        first, seen = bisect_left(self._positions, position(key)), set()
        for step in range(len(self._owners)):
            machine = self._owners[(first + step) % len(self._owners)]
            if machine not in seen:
                seen.add(machine)
                yield machine


class ConsistentHashing:
    """The machine of the request's key on a ring; the next one clockwise where its load is too high.

    The key is the session; a request without one goes to a machine drawn at random (stream ``router``). A
    load, requests not finished, is too high above ``max_load_skew`` times the mean. Where all are too high,
    or with ``max_load_skew`` null, the key's own machine takes it.

    Source: ``bounded_consistent_hashing`` of sgl-model-gateway (bounded_consistent_hashing.rs, lines 66–150,
    at 1cfac30c); the idea: Mirrokni, Thorup and Zadimoghaddam, arXiv 1608.01350.
    """

    needs = Needs(keys=("max_load_skew",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ring = HashRing(len(view.replicas))
        self._skew = view.settings.max_load_skew
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the request's key, or the next with room."""
        if sequence.session < 0:
            return int(self._draw.integers(len(self._view.replicas)))
        key = str(sequence.session)
        if self._skew is not None:
            loads = self._view.requests()
            most = sum(loads) / len(loads) * self._skew
            for machine in self._ring.clockwise(key):
                if loads[machine] <= most:
                    return machine
        return self._ring.owner(key)
