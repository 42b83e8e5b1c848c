"""The block store, block by block, in plain Python: the oracle of the tests and ``--backend python``.

It shares no code with the native store: no runs, no splits, no counters of what can be evicted; every
question is answered by looking at all blocks. Rules: semantics 1, 2 and 4.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.cache.digest import RollingDigest
from kvcache_sim.cache.store import EVICT, NO_MOVE, NO_REQUEST, Order

GPU = 0
_PRIVATE = 1 << 63
_UNBOUNDED = 1 << 60
_ABSENT, _IN_FLIGHT, _READY = range(3)


class ReferenceKeys:
    """Block keys, one at a time: the prompt's ids, then the next turn's, then private ones."""

    def __init__(
        self,
        id_offsets: NDArray[np.int64],
        block_ids: NDArray[np.uint32],
        blocks_per_id: int,
        full_blocks: NDArray[np.uint32],
        continuation: NDArray[np.uint32],
    ) -> None:
        self.offsets, self.ids = id_offsets.tolist(), block_ids.tolist()
        self.per, self.full, self.next = blocks_per_id, full_blocks.tolist(), continuation.tolist()

    def key(self, request: int, block: int) -> int:
        """Return a block's key; private ones have bit 63 set."""
        for source in (request, self.next[request]):
            if source != NO_REQUEST and block < self.full[source]:
                return int(self.ids[self.offsets[source] + block // self.per] * self.per + block % self.per)
        return _PRIVATE | request << 32 | block


@dataclass(eq=False, slots=True)
class _Block:
    key: int
    depth: int
    parent: _Block | None
    children: dict[int, _Block] = field(default_factory=dict)
    state: list[int] = field(default_factory=lambda: [_ABSENT] * 3)
    by: list[int] = field(default_factory=lambda: [NO_MOVE] * 3)
    access: list[int] = field(default_factory=lambda: [0] * 3)
    holds: list[int] = field(default_factory=lambda: [0] * 3)
    uses: int = 0

    def path(self) -> Iterator[_Block]:
        """Yield the block and all before it, deepest first; the root is not a block."""
        block: _Block | None = self
        while block is not None and block.parent is not None:
            yield block
            block = block.parent

    def gone(self) -> bool:
        """Return whether no tier has a copy."""
        return self.state == [_ABSENT] * 3


@dataclass(slots=True)
class _Tier:
    capacity: int
    free: int
    write_back: bool
    active: int = 0
    in_flight: int = 0
    evicted: int = 0
    overflowed: int = 0
    orphaned: int = 0


@dataclass(slots=True)
class _Lease:
    request: int
    tail: _Block
    depth: int
    access: int
    reserved: int = 0
    pending: int = 0
    live: bool = True


@dataclass(slots=True)
class _Move:
    to: int
    blocks: list[_Block]
    lease: _Lease | None = None
    #: Held until they have been read: (tier, last block).
    sources: list[tuple[int, _Block]] = field(default_factory=list)
    #: Blocks whose path it holds on its target tier.
    held: list[_Block] = field(default_factory=list)
    waiting: list[_Lease] = field(default_factory=list)


class ReferenceStore:
    """A ``BlockStore`` that can be read in one sitting. Cost: linear in the resident blocks, every call."""

    def __init__(self, keys: ReferenceKeys, capacities: list[int | None], write_back: list[bool]) -> None:
        self.keys = keys
        sizes = [_UNBOUNDED if c is None else c for c in capacities]
        self.tiers = [_Tier(c, c, back) for c, back in zip(sizes, write_back, strict=True)]
        self.root = _Block(-1, -1, None)
        self.resident: list[dict[_Block, None]] = [{}, {}, {}]
        self.leases: list[_Lease] = []
        self.moves: dict[int, _Move] = {}
        self.holds: dict[int, _Block] = {}
        self.orders: list[Order] = []
        self.clock = 0
        self.merged_blocks = 0
        self._digest = RollingDigest()
        self._next_move = 0
        self._log: list[tuple[int, int, int]] | None = None

    # -- looking

    def _find(self, request: int, limit: int) -> list[_Block]:
        found: list[_Block] = []
        at = self.root
        for depth in range(limit):
            child = at.children.get(self.keys.key(request, depth))
            if child is None:
                break
            found.append(child)
            at = child
        return found

    def _found(self, request: int, limit: int) -> list[_Block]:
        """Return the leading run that has copies: what is kept only for a reader below is not found."""
        return list(takewhile(lambda block: not block.gone(), self._find(request, limit)))

    def _at(self, request: int, depth: int) -> _Block:
        blocks = self._find(request, depth)
        assert len(blocks) == depth, "the path is in the trie"
        return blocks[-1] if blocks else self.root

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many blocks are found, and how many are ready on the GPU."""
        found = self._found(request, limit)
        ready = 0
        while ready < len(found) and found[ready].state[GPU] == _READY:
            ready += 1
        return len(found), ready

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the block, holders, access on the fastest tier) of each found block."""
        parts = []
        for depth, block in enumerate(self._found(request, limit)):
            tier = next(t for t in range(3) if block.state[t] != _ABSENT)
            parts.append((depth + 1, sum(block.holds), block.access[tier]))
        return parts

    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts by fastest tier and move."""
        parts: list[tuple[int, int, int, int]] = []
        for depth, block in enumerate(self._found(request, limit)):
            tier = next(t for t in range(3) if block.state[t] != _ABSENT)
            by = block.by[tier] if block.state[tier] == _IN_FLIGHT else NO_MOVE
            if parts and parts[-1][0] == tier and parts[-1][3] == by:
                parts[-1] = (tier, parts[-1][1], depth + 1, by)
            else:
                parts.append((tier, depth, depth + 1, by))
        return parts

    # -- holding

    def _hold(self, tier: int, block: _Block, times: int = 1) -> None:
        for b in block.path():
            b.holds[tier] += times

    def _pinned(self, block: _Block) -> bool:
        return any(block.holds)

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first blocks of a path on the GPU; return the lease."""
        tail = self._at(request, depth)
        self._hold(GPU, tail)
        for block in tail.path():
            block.uses += 1
        self.clock += 1
        self.leases.append(_Lease(request, tail, depth, self.clock))
        return len(self.leases) - 1

    def abandon(self, lease: int) -> None:
        """Take an acquisition back."""
        held = self.leases[lease]
        self._hold(GPU, held.tail, -1)
        for block in held.tail.path():
            block.uses -= 1
        held.live = False

    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold a path on a tier for a moment."""
        block = self._at(request, end)
        self._hold(tier, block)
        self.holds[len(self.holds)] = block
        return len(self.holds) - 1

    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        self._hold(tier, self.holds[hold], -1)
        self._sweep_orphans(self.holds[hold])

    def depth(self, lease: int) -> int:
        """Return how many blocks a lease holds through the cache."""
        return self.leases[lease].depth

    def release(self, lease: int) -> None:
        """End a lease, touch its path, free its private blocks."""
        held = self.leases[lease]
        self.clock += 1
        self._hold(GPU, held.tail, -1)
        for block in held.tail.path():
            for tier in range(3):
                if block.state[tier] == _READY:
                    block.access[tier] = self.clock
        now_free = held.reserved - held.pending
        self.tiers[GPU].active -= now_free
        self.tiers[GPU].free += now_free
        held.reserved = held.pending
        held.live = False

    def commit(self, lease: int, to: int) -> None:
        """Share computed blocks; where the GPU has one already, ours is freed."""
        held = self.leases[lease]
        gpu = self.tiers[GPU]
        for depth in range(held.depth, to):
            key = self.keys.key(held.request, depth)
            block = held.tail.children.get(key)
            if block is None:
                block = held.tail.children[key] = _Block(key, depth, held.tail)
            gpu.active -= 1
            if block.state[GPU] == _ABSENT:
                self._set(block, GPU, _READY)
                block.access[GPU] = held.access
            else:
                gpu.free += 1
                self.merged_blocks += 1
            block.holds[GPU] += 1
            block.uses += 1
            held.tail = block
            held.reserved -= 1
        held.depth = max(held.depth, to)

    # -- room

    def _set(self, block: _Block, tier: int, state: int, by: int = NO_MOVE) -> None:
        block.state[tier], block.by[tier] = state, by
        if state == _ABSENT:
            self.resident[tier].pop(block, None)
        else:
            self.resident[tier][block] = None

    def _cached(self, tier: int) -> int:
        return sum(b.state[tier] == _READY for b in self.resident[tier])

    def _may_go(self, block: _Block, tier: int) -> bool:
        """Return whether nothing but the blocks after it keeps a block on a tier."""
        if block.state[tier] != _READY or block.holds[tier]:
            return False
        last_copy = all(block.state[t] == _ABSENT for t in range(3) if t != tier)
        return not (tier == len(self.tiers) - 1 and last_copy and self._pinned(block))

    def _is_leaf(self, block: _Block, tier: int) -> bool:
        return all(child.state[tier] == _ABSENT for child in block.children.values())

    def _evictable(self, tier: int) -> int:
        return sum(self._may_go(b, tier) for b in self.resident[tier])

    def _select(self, tier: int, blocks: int) -> list[_Block]:
        """Return the next victims in eviction order: leaves, oldest access first, deepest first."""

        def leaf(block: _Block) -> bool:
            left = (c for c in block.children.values() if c not in chosen)
            return self._may_go(block, tier) and all(c.state[tier] == _ABSENT for c in left)

        chosen: dict[_Block, None] = {}
        heap = [(b.access[tier], -b.depth, b.key, b) for b in self.resident[tier] if leaf(b)]
        heapq.heapify(heap)
        while heap and len(chosen) < blocks:
            block = heapq.heappop(heap)[3]
            chosen[block] = None
            parent = block.parent
            assert parent is not None
            if parent is not self.root and leaf(parent):
                heapq.heappush(heap, (parent.access[tier], -parent.depth, parent.key, parent))
        return list(chosen)

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks."""
        return self.reserve_many([(lease, blocks)], now_ns)

    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several leases, all or nothing."""
        total = sum(n for _, n in wanted)
        pending = self._make_room(GPU, total, now_ns)
        if pending is None:
            return None
        late = sum(n for _, n in pending)
        self.tiers[GPU].active += total - late
        self.tiers[GPU].in_flight += late
        takers = [self.leases[lease] for lease, n in wanted for _ in range(n)]
        for lease, n in wanted:
            self.leases[lease].reserved += n
        for move, n in pending:
            for _ in range(n):
                taker = takers.pop(0)
                taker.pending += 1
                self.moves[move].waiting.append(taker)
        return sorted({move for move, _ in pending})

    def _make_room(self, tier: int, blocks: int, now_ns: int) -> list[tuple[int, int]] | None:
        room = self.tiers[tier]
        if room.free + self._evictable(tier) < blocks:
            return None
        shortfall = max(blocks - room.free, 0)
        victims = self._select(tier, shortfall)
        pending: list[tuple[int, int]] = []
        if tier == len(self.tiers) - 1:
            for block in victims:
                self._take_off(tier, block, now_ns)
                room.free += 1
                self._discard_if_gone(block)
        elif len(victims) < shortfall:
            return None
        else:
            pending = self._demote(tier, victims, now_ns)
        late = sum(n for _, n in pending)
        if room.free + late < blocks:
            return None
        room.free -= blocks - late
        return pending

    def _take_off(self, tier: int, block: _Block, now_ns: int) -> None:
        self._note_evicted(tier, block, now_ns)
        self._set(block, tier, _ABSENT)

    def _demote(self, tier: int, victims: list[_Block], now_ns: int) -> list[tuple[int, int]]:
        below = tier + 1
        pending: list[tuple[int, int]] = []
        to_write = []
        for block in victims:
            if block.state[below] == _ABSENT:
                self._hold(below, block)
                to_write.append(block)
            elif block.state[below] == _READY:
                self.tiers[tier].free += 1
            else:
                pending.append((block.by[below], 1))
            self._take_off(tier, block, now_ns)
        fits = self.tiers[below].free + self._evictable(below) if self.tiers[tier].write_back else 0
        excess = max(len(to_write) - fits, 0)
        for block in to_write[:excess]:
            self._let_go(tier, block)
        written = to_write[excess:]
        after = self._make_room(below, len(written), now_ns) if written else None
        if after is None:
            for block in written:
                self._let_go(tier, block)
            return pending
        self.tiers[below].in_flight += len(written)
        move = self._new_move(_Move(below, written, held=written))
        for block in written:
            block.access[below] = block.access[tier]
            self._set(block, below, _IN_FLIGHT, move)
        self.orders.append((move, tier, below, len(written), [m for m, _ in after]))
        pending.append((move, len(written)))
        return pending

    def _let_go(self, tier: int, block: _Block) -> None:
        self._hold(tier + 1, block, -1)
        self.tiers[tier].free += 1
        self.tiers[tier].overflowed += 1
        self._discard_if_gone(block)

    def _discard_if_gone(self, block: _Block) -> None:
        """Remove a block without copies and all that hangs below it, except what somebody pins."""
        if not block.gone():
            return
        below = [block]
        for at in below:
            below.extend(at.children.values())
        for at in reversed(below):
            if self._pinned(at):
                continue
            for tier in range(len(self.tiers)):
                if at.state[tier] == _READY:
                    self._set(at, tier, _ABSENT)
                    self.tiers[tier].free += 1
                    self.tiers[tier].orphaned += 1
            assert at.parent is not None
            del at.parent.children[at.key]

    def _sweep_orphans(self, block: _Block) -> None:
        gone = [b for b in block.path() if b.gone()]
        if gone:
            self._discard_if_gone(gone[-1])

    def _note_evicted(self, tier: int, block: _Block, now_ns: int) -> None:
        self.tiers[tier].evicted += 1
        self._digest.word((EVICT | tier << 8 | now_ns << 16) & (1 << 64) - 1)
        self._digest.word(block.key)
        if self._log is not None:
            self._log.append((now_ns, tier, 1))

    # -- moves

    def _new_move(self, move: _Move) -> int:
        self.moves[self._next_move] = move
        self._next_move += 1
        return self._next_move - 1

    def _land(self, blocks: list[_Block], to: int, after: list[int], lease: _Lease | None) -> int:
        tail = blocks[-1]
        move = self._new_move(_Move(to, blocks, lease, [(to + 1, tail)], [tail]))
        self._hold(to + 1, tail)
        self._hold(to, tail)
        for block in blocks:
            block.access[to] = block.access[to + 1]
            self._set(block, to, _IN_FLIGHT, move)
        self.orders.append((move, to + 1, to, len(blocks), list(after)))
        return move

    def _extend(self, lease: _Lease, blocks: list[_Block]) -> None:
        for block in blocks:
            block.holds[GPU] += 1
            block.uses += 1
            lease.tail = block
        lease.depth += len(blocks)

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks from the CPU into reserved blocks."""
        held = self.leases[lease]
        blocks = self._find(held.request, to)[held.depth :]
        move = self._land(blocks, GPU, after, held)
        self._extend(held, blocks)
        return move

    def join(self, lease: int, to: int) -> None:
        """Hold blocks that another request is loading."""
        held = self.leases[lease]
        self._extend(held, self._find(held.request, to)[held.depth :])

    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks one tier up, room made there first."""
        start, end = part
        blocks = self._find(request, end)[start:]
        self._hold(to_tier + 1, blocks[-1])
        room = self._make_room(to_tier, len(blocks), now_ns)
        self._hold(to_tier + 1, blocks[-1], -1)
        if room is None:
            return None
        self.tiers[to_tier].in_flight += len(blocks)
        after = [m for m, _ in room] + ([] if ready is None else [ready])
        return self._land(blocks, to_tier, after, None)

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy blocks from the GPU to the CPU where it has none."""
        path = self._find(self.leases[lease].request, end)
        return self._copy_down(GPU, path[start:], [path[-1]], now_ns)

    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy what the lease holds and ``uses`` requests have used one tier down."""
        path = self.leases[lease].tail.path()
        often = [b for b in path if b.uses >= uses and b.state[tier] == _READY]
        often = [b for b in often if b.state[tier + 1] == _ABSENT]
        return self._copy_down(tier, often[::-1], often[:1], now_ns)

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy what a move is about to make ready one tier further down."""
        on_its_way = self.moves[move]
        if on_its_way.to + 1 == len(self.tiers):
            return None
        return self._copy_down(on_its_way.to, on_its_way.blocks, on_its_way.held, now_ns)

    def _copy_down(self, tier: int, blocks: list[_Block], sources: list[_Block], now_ns: int) -> int | None:
        below = tier + 1
        missing = [b for b in blocks if b.state[below] == _ABSENT]
        if not missing:
            return None
        for source in sources:
            self._hold(tier, source)
        room = self._make_room(below, len(missing), now_ns)
        if room is None:
            for source in sources:
                self._hold(tier, source, -1)
                self._sweep_orphans(source)
            return None
        self.tiers[below].in_flight += len(missing)
        held = [(tier, source) for source in sources]
        move = self._new_move(_Move(below, missing, None, held, missing))
        for block in missing:
            block.access[below] = block.access[tier]
            self._set(block, below, _IN_FLIGHT, move)
            self._hold(below, block)
        self.orders.append((move, tier, below, len(missing), [m for m, _ in room]))
        return move

    def touch(self, request: int, end: int) -> None:
        """Make a path the most recently used."""
        self.clock += 1
        for block in self._find(request, end):
            for tier in range(3):
                if block.state[tier] == _READY:
                    block.access[tier] = self.clock

    def discard(self, request: int, end: int) -> None:
        """Discard a path from its end up to what is held, in flight or followed by another block."""
        for block in reversed(self._find(request, end)):
            if self._pinned(block) or block.children or _IN_FLIGHT in block.state:
                return
            for tier in range(len(self.tiers)):
                if block.state[tier] == _READY:
                    self._set(block, tier, _ABSENT)
                    self.tiers[tier].free += 1
            self._discard_if_gone(block)

    # -- other machines

    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the run from block ``start`` on that is found below the GPU, in parts."""
        parts: list[tuple[int, int, int, int]] = []
        for depth, block in list(enumerate(self._found(request, limit)))[start:]:
            tier = next((t for t in (1, 2) if block.state[t] != _ABSENT), None)
            if tier is None:
                break
            by = block.by[tier] if block.state[tier] == _IN_FLIGHT else NO_MOVE
            if parts and parts[-1][0] == tier and parts[-1][3] == by:
                parts[-1] = (tier, parts[-1][1], depth + 1, by)
            else:
                parts.append((tier, depth, depth + 1, by))
        return parts

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold a path on a tier until the returned move is finished."""
        tail = self._at(request, end)
        self._hold(tier, tail)
        return self._new_move(_Move(tier, [], None, [(tier, tail)]))

    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Land blocks of another machine on the CPU, room made there first."""
        start, end = part
        parent = self._at(request, start)
        if self.keys.key(request, start) in parent.children:
            return None
        self._hold(GPU + 1, parent)
        room = self._make_room(GPU + 1, end - start, now_ns)
        self._hold(GPU + 1, parent, -1)
        if room is None:
            return None
        self.tiers[GPU + 1].in_flight += end - start
        blocks: list[_Block] = []
        for depth in range(start, end):
            key = self.keys.key(request, depth)
            block = parent.children[key] = _Block(key, depth, parent)
            blocks.append(block)
            parent = block
        move = self._new_move(_Move(GPU + 1, blocks, held=[parent]))
        for block in blocks:
            block.access[GPU + 1] = self.clock
            self._set(block, GPU + 1, _IN_FLIGHT, move)
        self._hold(GPU + 1, parent)
        self.orders.append((move, 3, GPU + 1, len(blocks), [m for m, _ in room]))
        return move

    def take_orders(self) -> list[Order]:
        """Return the transmissions decided since the last call."""
        taken, self.orders = self.orders, []
        return taken

    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready and its room free."""
        done = self.moves.pop(move)
        for block in done.blocks:
            self._set(block, done.to, _READY)
        for block in done.held:
            self._hold(done.to, block, -1)
            self._sweep_orphans(block)
        for tier, tail in done.sources:
            self._hold(tier, tail, -1)
            self._sweep_orphans(tail)
        if done.lease is None:
            self.tiers[done.to].in_flight -= len(done.blocks)
        else:
            self.tiers[done.to].active -= len(done.blocks)
            done.lease.reserved -= len(done.blocks)
        for lease in done.waiting:
            self.tiers[GPU].in_flight -= 1
            lease.pending -= 1
            if lease.live:
                self.tiers[GPU].active += 1
            else:
                lease.reserved -= 1
                self.tiers[GPU].free += 1

    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop lower copies that nobody holds and that are not the last."""
        for block in reversed(self._find(request, end)[start:]):
            elsewhere = any(block.state[t] != _ABSENT for t in range(3) if t != tier)
            if block.state[tier] == _READY and not block.holds[tier] and elsewhere:
                self._set(block, tier, _ABSENT)
                self.tiers[tier].free += 1

    # -- counting

    def room(self, tier: int) -> tuple[int, int, int, int, int]:
        """Return (free, active, cached, in flight, evictable) blocks."""
        t = self.tiers[tier]
        return t.free, t.active, self._cached(tier), t.in_flight, self._evictable(tier)

    def losses(self, tier: int) -> tuple[int, int, int]:
        """Return (evicted, overflowed, orphaned) blocks."""
        t = self.tiers[tier]
        return t.evicted, t.overflowed, t.orphaned

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""
        self._digest.record(kind, now_ns, subject, value)

    @property
    def digest(self) -> int:
        """The rolling hash so far."""
        return self._digest.value

    def log_evictions(self) -> None:
        """Start keeping evictions."""
        self._log = []

    def take_evictions(self) -> list[tuple[int, int, int]]:
        """Return the evictions since the last call."""
        taken, self._log = self._log or [], None if self._log is None else []
        return taken

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""
        for number, tier in enumerate(self.tiers):
            used = tier.free + tier.active + self._cached(number) + tier.in_flight
            if used != tier.capacity:
                raise RuntimeError(f"I2: tier {number} accounts for {used} of {tier.capacity} blocks")
        for block in self.resident[GPU]:
            parent = block.parent
            if parent is not self.root and (parent is None or parent.state[GPU] == _ABSENT):
                raise RuntimeError(f"I4: block {block.key} is on the gpu, its parent is not")
