"""W-TinyLFU: a window, and a main cache that admits only what is used more often (Einziger et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo
from kvcache_sim.reference.policies.segments import Segments

_MASK = 2**64 - 1
_P1, _P2, _P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
_P4, _P5 = 9650029242287828579, 2870177450012600261


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def xxh64(number: int, seed: int) -> int:
    """Return the XXH64 of a number's eight bytes, little endian."""
    lane = _rotated(number * _P2 & _MASK, 31) * _P1 & _MASK
    hashed = _rotated((seed + _P5 + 8 & _MASK) ^ lane, 27) * _P1 + _P4 & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


class Sketch:
    """A count-min sketch of ten counters a name, all of them raised by an addition (libCacheSim 0.3.5)."""

    def __init__(self, names: int) -> None:
        self.counters = [0] * max(1, math.ceil(14.3775875661 * names))

    def counters_of(self, name: int) -> list[int]:
        """Return the ten counters of a name."""
        first, step = (xxh64(name & _MASK, seed) & 0xFFFFFFFF for seed in (0x12345678, 0x12344321))
        return [(first + i * step) % 2**32 % len(self.counters) for i in range(10)]

    def add(self, name: int) -> None:
        """Count a name once."""
        for counter in self.counters_of(name):
            self.counters[counter] += 1

    def estimate(self, name: int) -> int:
        """Return how often a name was counted, at least."""
        return min(self.counters[counter] for counter in self.counters_of(name))


class WTinyLfu:
    """A hundredth of the room, at least a block, is the window; the rest an SLRU of 1 : 4."""

    def __init__(self, capacity: int) -> None:
        self.main_blocks = capacity - max(1, capacity // 100)
        self.window: list[Block] = []
        self.main = Segments([self.main_blocks // 5, 4 * self.main_blocks // 5])
        self.sketch = Sketch(self.main_blocks)
        self.uses = 0

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn: the sketch counts insertions, moves and uses of the main cache."""

    def on_hit(self, block: Block) -> None:
        """Be recent in the window, or climb and be counted in the main cache."""
        if block in self.window:
            self.window.remove(block)
            self.window.append(block)
            return
        self.main.lift(block)
        self.sketch.add(block.name)
        self.uses += 1
        if self.uses >= 32 * self.main_blocks:
            self.sketch.counters = [count // 2 for count in self.sketch.counters]
            self.uses = 0

    def insert(self, block: Block) -> None:
        """Join the window."""
        self.window.append(block)
        self.sketch.add(block.name)

    def _admit(self, block: Block) -> None:
        self.window.remove(block)
        self.main.insert(block)
        self.sketch.add(block.name)

    def evict(self, may_go: MayGo) -> Block | None:
        """Fill the main cache from the window, then let the oldest there and the main victim compete."""
        while self.window and len(self.main) < self.main_blocks:
            self._admit(self.window[0])
        newcomer = next(filter(may_go, self.window), None)
        victim = self.main.victim(may_go)
        if newcomer is None or victim is None:
            loser = newcomer or victim
        elif self.sketch.estimate(newcomer.name) > self.sketch.estimate(victim.name):
            self.main.remove(victim)
            self._admit(newcomer)
            return victim
        else:
            loser = newcomer
        if loser is not None and loser is newcomer:
            self.sketch.add(loser.name)
        if loser is not None:
            self.remove(loser)
        return loser

    def give_up(self, may_go: MayGo) -> Block | None:
        """Let go what a fall made one too many in the main cache."""
        return self.main.spill(may_go)

    def remove(self, block: Block) -> None:
        """Leave the window or the main cache."""
        if block in self.window:
            self.window.remove(block)
        self.main.remove(block)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> WTinyLfu:
    """Return the policy of a tier of ``capacity`` blocks."""
    return WTinyLfu(capacity)
