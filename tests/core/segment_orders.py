"""Small models of eviction orders with segments: SLRU, S4LRU and W-TinyLFU."""

import math

from order_base import Block, MayGo, Order, take_first, take_out


# Segmented LRU: reused blocks are protected; demoted blocks get another round (Karedla et al. 1994).
class Slru(Order):
    """Segmented LRU with up to four fifths of the capacity protected. Lists are oldest first."""

    def __init__(self, capacity: int) -> None:
        self.probation: list[Block] = []
        self.protected: list[Block] = []
        self.protected_blocks = capacity * 4 // 5

    def on_hit(self, block: Block) -> None:
        """Protect the block; the least recent protected one may fall out."""
        (self.protected if block in self.protected else self.probation).remove(block)
        self.protected.append(block)
        if len(self.protected) > self.protected_blocks:
            self.probation.append(self.protected.pop(0))

    def insert(self, block: Block) -> None:
        self.probation.append(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the least recent on probation, else of the protected."""
        return take_first(self.probation, may_go) or take_first(self.protected, may_go)

    def remove(self, block: Block) -> None:
        take_out(block, self.probation, self.protected)


class Segments:
    """Lists with a capacity in blocks each, least recent first."""

    def __init__(self, segment_blocks: list[int]) -> None:
        self.segment_blocks = segment_blocks
        self.lists: list[list[Block]] = [[] for _ in segment_blocks]
        self.has_fallen = False

    def __len__(self) -> int:
        """Return the blocks in all segments."""
        return sum(map(len, self.lists))

    def __contains__(self, block: Block) -> bool:
        """Return whether a segment has the block."""
        return any(block in blocks for blocks in self.lists)

    def lift(self, block: Block) -> None:
        """Promote a block by one segment; an overfull segment demotes its least recent block, down to the
        lowest."""
        at = next(k for k, blocks in enumerate(self.lists) if block in blocks)
        self.lists[at].remove(block)
        top = min(at + 1, len(self.lists) - 1)
        self.lists[top].append(block)
        for k in range(top, 0, -1):
            if len(self.lists[k]) > self.segment_blocks[k]:
                self.lists[k - 1].append(self.lists[k].pop(0))
                self.has_fallen = k == 1
            else:
                break

    def spill(self, may_go: MayGo) -> Block | None:
        """Remove and return a block of the lowest segment if a demotion put it over its capacity."""
        if not self.has_fallen:
            return None
        self.has_fallen = len(self.lists[0]) > self.segment_blocks[0]
        return take_first(self.lists[0], may_go) if self.has_fallen else None

    def insert(self, block: Block) -> None:
        capacities = zip(self.lists, self.segment_blocks, strict=True)
        next((blocks for blocks, bounds in capacities if len(blocks) < bounds), self.lists[0]).append(block)

    def victim(self, may_go: MayGo) -> Block | None:
        """Return the least recent block that may go of the lowest segment that has one."""
        return next((block for blocks in self.lists for block in blocks if may_go(block)), None)

    def remove(self, block: Block) -> None:
        """Take a block out, if it is here."""
        take_out(block, *self.lists)


# S4LRU: four segments of recency, of which each use climbs one (Huang et al., SOSP 2013).
class S4Lru(Order):
    """Segments of a quarter of the capacity, rounded down; an empty cache fills from below (libCacheSim)."""

    def __init__(self, capacity: int) -> None:
        self.segments = Segments([capacity // 4] * 4)

    def on_hit(self, block: Block) -> None:
        """Climb."""
        self.segments.lift(block)

    def insert(self, block: Block) -> None:
        self.segments.insert(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the least recent of the lowest segment."""
        victim = self.segments.victim(may_go)
        if victim is not None:
            self.segments.remove(victim)
        return victim

    def abort(self, may_go: MayGo) -> Block | None:
        """Release the block that a demotion made one too many."""
        return self.segments.spill(may_go)

    def remove(self, block: Block) -> None:
        self.segments.remove(block)


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


# W-TinyLFU: a window, and a main cache that admits only blocks used more often (Einziger et al. 2017).
class WTinyLfu(Order):
    """A window of a hundredth of the capacity, at least a block; the rest is an SLRU of 1 : 4."""

    def __init__(self, capacity: int) -> None:
        self.main_blocks = capacity - max(1, capacity // 100)
        self.window: list[Block] = []
        self.main = Segments([self.main_blocks // 5, 4 * self.main_blocks // 5])
        self.sketch = Sketch(self.main_blocks)
        self.uses = 0

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

    def abort(self, may_go: MayGo) -> Block | None:
        """Release the block that a demotion made one too many in the main cache."""
        return self.main.spill(may_go)

    def remove(self, block: Block) -> None:
        if block in self.window:
            self.window.remove(block)
        self.main.remove(block)
