"""A ring of hashes: which machine a key belongs to, and which ones follow it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b

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
