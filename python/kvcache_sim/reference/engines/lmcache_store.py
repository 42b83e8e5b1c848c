"""vLLM's block pool with LMCache's CPU and disk tiers below, as a timed machine's store; a chunk is a block.

A look-up goes from the prompt's first chunk over the CPU, then over the disk. What is behind the pool's hit
is loaded, from the disk through the CPU, where it stays. What a step has computed of a prompt behind the
look-up is stored on the CPU, and from there on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from kvcache_sim.cache.store import NO_MOVE, LoadingStore, Losses, OffersComputed, Room
from kvcache_sim.reference.engines.leased_store import in_parts
from kvcache_sim.reference.engines.lmcache_replay import Tier
from kvcache_sim.reference.engines.offload_tier import HeldKeys
from kvcache_sim.reference.engines.offloaded_store import ReferenceOffloadedStore
from kvcache_sim.reference.engines.pool_copies import Copy
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import numbered, refuse
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import COMPUTE, STAGING

#: The tier below the CPU.
DISK = STAGING + 1


class LmcacheTiers(HeldKeys):
    """LMCache's tiers (0.5.6, ``v1/storage_backend``); a disk of no chunks is none."""

    def __init__(self, policy: str, cpu_chunks: int, disk_chunks: int) -> None:
        super().__init__()
        self.policy, self.disk = Tier(policy, cpu_chunks), Tier(policy, disk_chunks)
        #: Chunks on disk that are being read or written.
        self.on_disk = HeldKeys()
        self.capacity_blocks, self.stored = cpu_chunks, 0

    def look_up(self, keys: Sequence[Key]) -> tuple[int, int]:
        """Return the leading chunks found on the CPU, and those with what follows on disk."""
        on_cpu = sum(1 for _ in takewhile(self.policy.__contains__, keys))
        on_disk = sum(1 for _ in takewhile(self.disk.__contains__, keys[on_cpu:]))
        # the engine would wait for more of its CPU memory
        room = self.capacity_blocks - len({*keys[:on_cpu], *self.in_use})
        return on_cpu, on_cpu + min(on_disk, room)

    def hit(self, keys: Sequence[Key], on_cpu: int) -> None:
        """Count a look-up's hits, the last chunk first."""
        for key in reversed(keys[:on_cpu]):
            self.policy.hit(key)
        for key in reversed(keys[on_cpu:]):
            self.disk.hit(key)

    def take(self, chunks: int, pinned: Iterable[Key]) -> tuple[int, list[Key]]:
        """Make room on the CPU; return for how many chunks there is room, and who was evicted."""
        kept, victims = {*self.in_use, *pinned}, list[Key]()
        for taken in range(chunks):
            if len(self.policy.chunks) + taken == self.capacity_blocks:
                victim = self.policy.evict(kept)
                if victim is None:
                    return taken, victims
                victims.append(victim)
        return chunks, victims

    def promote(self, keys: Sequence[Key], pinned: Iterable[Key]) -> tuple[list[Key], list[Key]]:
        """Bring chunks from the disk to the CPU; return those that were not there, and who was evicted."""
        taken, victims = self.take(len(keys), pinned)
        if taken < len(keys):
            raise RuntimeError("chunks were found for which there is no room")
        for key in keys:
            self.disk.hit(key)
        return self._put(keys), victims

    def store(self, keys: Sequence[Key]) -> tuple[list[Key], list[Key], list[Key]]:
        """Store chunks on the CPU as far as there is room; return those, the new, and who was evicted."""
        taken, victims = self.take(len(keys), ())
        self.stored += taken
        return list(keys[:taken]), self._put(keys[:taken]), victims

    def _put(self, keys: Sequence[Key]) -> list[Key]:
        new = [key for key in keys if key not in self.policy]
        for key in new:
            self.policy.put(key)
        return new

    def store_on_disk(self, keys: Sequence[Key]) -> tuple[list[Key], int]:
        """Store chunks on disk too; return the new ones, and how many were evicted."""
        new, before = list[Key](), self.disk.evictions
        for key in keys if self.disk.capacity else ():
            if key in self.disk:
                self.disk.hit(key)
            elif len(self.disk) < self.disk.capacity or self.disk.evict(self.on_disk.in_use) is not None:
                self.disk.put(key)
                new.append(key)
        return new, self.disk.evictions - before

    def finish(self, request: int) -> None:
        """Hear that a request has ended, which changes nothing."""


class ReferenceLmcacheStore(ReferenceOffloadedStore):
    """A pool, the tiers below it, and the copies between them that are under way."""

    tier: LmcacheTiers  # type: ignore[assignment]

    def __init__(
        self,
        keys: ReferenceKeys,
        capacity_blocks: int,
        tier: LmcacheTiers,
        prompt_tokens: list[int],
        block_size_tokens: int,
    ) -> None:
        super().__init__(keys, capacity_blocks, tier, prompt_tokens, block_size_tokens)  # type: ignore[arg-type]
        #: By running request what its look-up found: chunks on the CPU, and with those on disk.
        self._looked_up: dict[int, tuple[int, int]] = {}
        #: Chunks that are being written to the disk, by the move.
        self._to_disk: dict[Key, int] = {}
        self._now_ns = 0

    def _chunks(self, request: int) -> list[Key]:
        return self._named(request, 0, self._prompt_tokens[request] // self._block_tokens)

    # -- what is there

    @numbered
    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found in the pool and the tiers, and are ready in the pool."""
        self.leases.known_request(request)
        found = self._found(request, limit)
        ready = next((k for k in range(found) if self._move_of(request, k) != NO_MOVE), found)
        below = self.tier.look_up(self._chunks(request))[1]
        return max(found, min(below, self._askable_below(request, limit))), ready

    @numbered
    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts: (tier, first block, past the last, move writing it)."""
        names, (on_cpu, below) = self._named(request, 0, limit), self.tier.look_up(self._chunks(request))
        # the pool always computes a prompt's last token, so its block comes from a tier
        last = limit - 1 if limit * self._block_tokens == self._prompt_tokens[request] else limit
        in_pool = self._found(request, last)
        if in_pool == last < limit and below <= last:
            in_pool = self._found(request, limit)
        places = [(COMPUTE, self._move_of(request, k)) for k in range(in_pool)]
        places += [(STAGING, self._writing.get(key, NO_MOVE)) for key in names[in_pool:on_cpu]]
        places += [(DISK, self._to_disk.get(key, NO_MOVE)) for key in names[max(in_pool, on_cpu) : below]]
        return in_parts(places)

    # -- admission

    @numbered
    def protect(self, request: int, end: int, tier: int) -> int:
        """Return a hold of nothing: look-up and loads of a request are one moment."""
        hold = next(self._numbers)
        self._holds[hold] = []
        return hold

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take new blocks for several leases, all or nothing; return the copies that still read them."""
        leases = [self.leases.get(lease) for lease, _ in wanted]
        first = [held.request for held in leases if not held.is_admitted]
        waits = super().reserve_many(wanted, now_ns)
        self._now_ns = now_ns
        for request in first if waits is not None else ():
            chunks = self._chunks(request)
            on_cpu, below = self._looked_up[request] = self.tier.look_up(chunks)
            self.tier.hit(chunks[:below], on_cpu)
            self._to_offer[request] = below
        return waits

    @numbered
    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks up to ``to``, those on disk through the CPU; return the last move."""
        request = self.leases.admitted(lease).request
        depth, (on_cpu, _) = self.keyed[request], self._looked_up[request]
        blocks, names = self.pool.held[request][depth:to], self._named(request, depth, to)
        if len(blocks) < to - depth:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        before = list(after)
        if depth >= on_cpu:
            new, victims = self.tier.promote(names, self._chunks(request)[:on_cpu])
            self._note_evicted(len(victims), self._now_ns, STAGING)
            self.tier.on_disk.hold(names)
            read = self._start(Copy(names, [], DISK, STAGING), before)
            self._writing.update(dict.fromkeys(new, read))
            before = [*before, read]
        move = self._read(names, blocks, before)
        self.pool.cache(request, self._names(request, to))
        self.keyed[request] = to
        return move

    # -- what steps compute

    def _offer(self, request: int, blocks: tuple[int, int], now_ns: int) -> bool:
        """Store blocks behind the look-up as far as there is room; what finds none is not stored."""
        names = self._named(request, *blocks)
        kept, new, victims = self.tier.store(names)
        self._note_evicted(len(victims), now_ns, STAGING)
        if not kept:
            return True
        written = self._write(kept, self.pool.held[request][blocks[0] : blocks[0] + len(kept)], new)
        to_disk, lost = self.tier.store_on_disk(kept)
        self._note_evicted(lost, now_ns, DISK)
        if to_disk:
            self.tier.on_disk.hold(to_disk)
            move = self._start(Copy(to_disk, [], STAGING, DISK), [written])
            self._to_disk.update(dict.fromkeys(to_disk, move))
        return True

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Let go of a request's blocks."""
        self._looked_up.pop(self.leases.get(lease).request, None)
        super().release(lease, now_ns)

    def _written(self, copy: Copy, move: int) -> None:
        super()._written(copy, move)
        if DISK in (copy.from_tier, copy.to_tier):
            self.tier.on_disk.let_be(copy.keys)
        for key in copy.keys:
            if self._to_disk.get(key) == move:
                del self._to_disk[key]

    # -- counts

    @numbered
    def room(self, tier: int) -> Room:
        """Return how the blocks of the pool, or of a tier, are used."""
        if tier != DISK:
            return super().room(tier)
        there, writing = len(self.tier.disk), sum(key in self.tier.disk for key in self._to_disk)
        idle = there - sum(key in self.tier.disk for key in self.tier.on_disk.in_use)
        return Room(self.tier.disk.capacity - there, 0, there - writing, writing, idle)

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) blocks."""
        if tier == COMPUTE:
            return super().losses(tier)
        return Losses((self.tier.policy if tier == STAGING else self.tier.disk).evictions, 0, 0)

    @numbered
    def duplicates(self, tier: int) -> int:
        """Return how many blocks of a tier a faster one has too."""
        if tier == STAGING:
            return sum(key in self.pool.blocks_of for key in self.tier.policy.chunks)
        return sum(key in self.pool.blocks_of or key in self.tier.policy for key in self.tier.disk.chunks)

    def _check_tier(self) -> None:
        for tier in (self.tier.policy, self.tier.disk):
            if len(tier) > tier.capacity or sorted(tier.chunks) != sorted(tier.counts):
                raise RuntimeError(f"I2: {len(tier)} of {tier.capacity} blocks in a tier")
        if any(key not in self.tier.policy for key in self._writing):
            raise RuntimeError("I3: a block was evicted from the CPU while it was written")


if TYPE_CHECKING:

    def _fulfils(store: ReferenceLmcacheStore) -> tuple[LoadingStore, OffersComputed]:
        return store, store
