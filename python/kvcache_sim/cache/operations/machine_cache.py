"""The cache of one machine, operated by hand: every operation of seed 001 with its timestamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kvcache_sim.cache.fetch.policy import Part
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.operations.listing import (
    ListedBlock,
    list_blocks,
    ready_by,
    request_of_keys,
    request_of_tokens,
)
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.operations.native import NativeMovement
from kvcache_sim.cache.operations.transfer import Active, NativeTransfer, Space, Switched
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.engine import NO_MACHINE, SAMPLE
from kvcache_sim.errors import UsageError
from kvcache_sim.tiers import COMPUTE, REMOTE, STAGING, TIERS
from kvcache_sim.workload.block_names import BlockNames, BlockTokens

#: More blocks than any path has.
NO_LIMIT = 0xFFFF_FFFF


class MachineCache:
    """One machine's tiers, its trie and its channels, at a moment of the machines' common clock.

    An operation happens now and returns at once, with the times at which its effects come; `run_until` lets
    time pass. Blocks ``(start, end)`` are those of a request's path, ``end`` excluded. Where holders leave
    too little room the answer is None, and nothing has changed. Cost: that of the store's own operations.
    """

    def __init__(
        self,
        machine: Machine,
        machines: Sequence[Machine],
        names: BlockNames,
        movement: NativeMovement,
    ) -> None:
        self.machine = machine
        #: What moves its blocks.
        self.mover = movement
        self.tiers = machine.tiers
        self.names = names
        self.store = marking(machine.tree)
        self.engine = machine.engine
        #: All machines, this one among them: a look-up lists the copies on each.
        self._machines = machines

    # -- time

    @property
    def now_ns(self) -> int:
        """The moment of all machines."""
        return self.engine.now_ns

    def run_until(self, ns: int) -> None:
        """Let time pass on all machines: what arrives until then, or at that moment, has arrived."""
        self.engine.schedule(ns, SAMPLE, NO_MACHINE, lambda _: None)
        self.engine.run(until_ns=ns)
        for machine in self._machines:
            machine.expire()

    # -- basic operations: look up, transmit, mark

    def match_prefix(
        self,
        request: int | None = None,
        limit: int | None = None,
        contents: BlockTokens | None = None,
        *,
        keys: Sequence[int] | None = None,
        tokens: Sequence[int] | None = None,
        at_ns: int | None = None,
    ) -> tuple[ListedBlock, ...]:
        """Return the leading blocks that are found, at most ``limit``, with all their copies.

        What is looked up is a request of the trace, the ``keys`` of blocks, or ``tokens``: token ids, of
        which ``contents`` says what the trace's blocks hold. Found is what this machine has on any tier, and
        under cluster look-up the longest continuation below the GPU of one other machine. Copies are listed
        wherever they are, also those that are still being written; with ``at_ns`` (now or later, as known
        now) the run ends where no copy within reach is whole by then, and only such copies are listed.
        Recency is not changed. UsageError for none or several of request, keys and tokens, for tokens without
        ``contents``, and for a time that has passed.
        """
        request, blocks = self._looked_up(request, keys, tokens, contents)
        limit = blocks if limit is None else min(limit, blocks)
        found = self.store.peek(request, limit)[0]
        reads_others = self.machine.reads_others
        if reads_others and found < limit:
            away = self.mover.longest(request, found, limit)
            found = found if away is None else away[1][-1][2]
        trees = [(machine.number, machine.tree) for machine in self._machines]
        listed = list_blocks(trees, request, found, self.names, contents)
        if at_ns is None:
            return listed
        if at_ns < self.now_ns:
            raise UsageError("a time that has passed", "at_ns", str(at_ns), f"{self.now_ns} or later")
        own, gpu = self.mover.machine, TIERS[COMPUTE]
        return ready_by(listed, at_ns, lambda c: c.machine == own or (reads_others and c.tier != gpu))

    def _looked_up(
        self,
        request: int | None,
        keys: Sequence[int] | None,
        tokens: Sequence[int] | None,
        contents: BlockTokens | None,
    ) -> tuple[int, int]:
        """Return the request on whose path a look-up goes, and how many of its blocks it may find."""
        if sum(given is not None for given in (request, keys, tokens)) != 1:
            raise UsageError(
                "what to look up", "match_prefix", expected="a request, keys or tokens, one of them"
            )
        if keys is not None:
            return request_of_keys(self.names, keys)
        if tokens is not None:
            if contents is None:
                raise UsageError(
                    "tokens that nothing compares", "match_prefix", expected="contents beside tokens"
                )
            return request_of_tokens(self.names, contents, tokens)
        assert request is not None
        return request, NO_LIMIT

    def transmit(self, edge: str, tokens: int) -> Transmission:
        """Launch one transmission of the KV of some tokens over an edge's channel, behind those before it.

        Returns its first layer's arrival, its completion and the time of each layer (semantics 3). UsageError
        for an edge the machine does not have, for less than 0 tokens, and for a channel whose times are final
        only when they come: one shared fairly, or one that serves loads first.
        """
        if edge not in self.mover.channels:
            raise UsageError("no such edge", got=edge, expected=f"one of {', '.join(self.mover.channels)}")
        channel = self.mover.channels[edge]
        if channel.by_layer:
            raise UsageError(
                "times are not final when a job is queued", edge, expected="sharing fifo, in order"
            )
        if tokens < 0:
            raise UsageError("fewer than no tokens", edge, got=str(tokens), expected="0 or more")
        pieces = -(-tokens // self.machine.cache.block_size_tokens) * self.mover.layers
        size = tokens * self.machine.cache.kv_bytes_per_token
        self.mover.count(edge, size)
        return channel.transmit(size, pieces, self.mover.layers, self.now_ns)

    def mark(
        self, space: Space, request: int, start: int, sent: Transmission, source: str | None = None
    ) -> NativeTransfer | None:
        """Mark blocks from ``start`` on present in acquired space, ready at the times of a transmission.

        ``source``: the tier they are read from, where they are held until then. Until they are ready they are
        found, not ready. None, nothing marked, where one of them is on the tier already or not on the source,
        or does not follow a found block. UsageError where they would be written before the space is free.
        """
        free_at_ns = space.ready_at_ns
        if free_at_ns is None or sent.start_ns < free_at_ns:
            raise UsageError(
                "written before the space is free",
                got=f"{sent.start_ns} ns",
                expected="a time that is not known yet" if free_at_ns is None else f"{free_at_ns} ns",
            )
        origin = None if source is None else self._level(source)
        part = (start, start + space.blocks)
        if not self.store.fill_claim(space.move, request, part, origin):
            return None
        level = self._level(space.tier)
        self.store.set_times(space.move, sent.first_layer_ns, sent.completion_ns)
        tiers = (REMOTE if origin is None else origin, level)
        return self.mover.arrive(space.move, tiers, space.blocks, sent)

    def mark_absent(self, request: int, blocks: tuple[int, int], tier: str) -> int:
        """Mark blocks not present on a tier, last first, as far as nothing keeps them; return how many.

        Kept is what is held, still being written, or followed by a block on that tier. Nothing is written
        down; a block that loses its last copy leaves the trie.
        """
        return self.store.remove(request, blocks, self._level(tier))

    # -- room

    def acquire_space(self, tier: str, blocks: int) -> Space | None:
        """Make room on a tier: evict the shortfall, write down what is absent below, wait for those writes.

        The seed's synced_acquire_space; the space is the caller's from now on, free at ``ready_at_ns``.
        """
        before = self._evicted()
        claimed = self.store.claim(self._level(tier), blocks, self.now_ns)
        if claimed is None:
            return None
        self.mover.issue()
        move, after = claimed
        evicted = {tier: blocks - before[tier] for tier, blocks in self._evicted().items()}
        return Space(tier, blocks, move, self.now_ns, self._open(after), evicted)

    def release_space(self, space: Space) -> None:
        """Give acquired space back, as soon as it is free."""
        transfers = self.mover.transfers
        waits = [transfer for transfer in space.written if transfer.move in transfers]
        if waits:
            self.mover.on_complete(waits, partial(self.store.release_claim, space.move))
        else:
            self.store.release_claim(space.move)

    def evict(self, tier: str, blocks: int) -> Space | None:
        """Evict that many blocks from a tier: the least recently used, leaves first, and deepest first.

        What is absent below is written there first; on the lowest tier it is discarded. Returns the space,
        which is given back to the tier when it is free.
        """
        space = self.acquire_space(tier, self.store.occupancy(self._level(tier)).free_blocks + blocks)
        if space is not None:
            self.release_space(space)
        return space

    def discard(self, request: int, end: int) -> int:
        """Discard a path from block ``end`` back to what is held, in flight or followed; return how many.

        Discarded blocks leave all tiers and the trie: they are not found any more.
        """
        found = self.store.peek(request, end)[0]
        self.store.discard(request, 0, found)
        return found - self.store.peek(request, end)[0]

    # -- moves between tiers

    def fetch_to_memory(self, request: int, blocks: tuple[int, int]) -> NativeTransfer | None:
        """Copy blocks from disk to memory: acquire space on the cpu, transmit, mark present there.

        The seed's synced_fetch_from_disk_to_memory. The transmission waits for the space, and for the blocks
        where they are still being written to the disk. UsageError where a block is not on the disk, or is on
        the cpu already.
        """
        start, end = blocks
        moves = self._only_on(STAGING + 1, STAGING, request, blocks)
        ready = max((move for move in moves if move != NO_MOVE), default=None)
        move = self.store.stage(request, (start, end), STAGING, ready, self.now_ns)
        if move is None:
            return None
        transfers = self._issue()
        return transfers[move]

    def fetch_from_remote(self, request: int, limit: int) -> list[NativeTransfer]:
        """Copy what one other machine has after this machine's run into the own cpu tier; the longest wins.

        From another machine's cpu over the network, from its disk over both channels; its blocks are held
        until they have been read. Stops where landing is refused. UsageError under local look-up.
        """
        if not self.machine.reads_others:
            raise UsageError("other machines are not looked up", "fetch.lookup", expected="cluster")
        found = self.store.peek(request, limit)[0]
        run = self.mover.longest(request, found, limit) if found < limit else None
        landed = []
        for part in run[1] if run else ():
            assert run is not None
            move = self.mover.fetch(request, run[0], part, self.now_ns)
            if move is None:
                break
            landed.append(move)
        transfers = self._issue()
        return [transfers[move] for move in landed]

    # -- active blocks

    def allocate_active(self, request: int, reuse: int, active: int) -> Active | None:
        """Hold the first ``reuse`` found blocks on the GPU, loading what is below, and reserve active ones.

        All or nothing: room for loaded and active blocks is one reservation. A part that cannot be staged on
        the cpu ends what is reused; its room then is active too.
        """
        found = self.store.match_prefix(request, reuse)
        parts = [Part(*part) for part in found]
        ready = parts[0].end if parts and parts[0].tier == COMPUTE and parts[0].is_ready else 0
        total = max(reuse, parts[-1].end if parts else 0) + active
        joined = sum(part.end - part.start for part in parts if part.tier == COMPUTE and not part.is_ready)
        held = [(p.tier, self.store.protect(request, p.end, p.tier)) for p in parts if p.tier != COMPUTE]
        lease = self.store.acquire(request, ready)
        freeing_moves = self.store.reserve(lease, total - ready - joined, self.now_ns)
        loads: list[int] = []
        reused = dict.fromkeys(self.tiers, 0)
        depth = ready
        if freeing_moves is None:
            self.store.abandon(lease)
        else:
            reused[TIERS[COMPUTE]] = ready
            for part in parts:
                if part.end > ready:
                    load = self.mover.load(request, lease, part, freeing_moves, self.now_ns)
                    if load is None:
                        break
                    loads.append(load)
                    reused[TIERS[part.tier]] += part.end - part.start
                    depth = part.end
        for tier, hold in held:
            self.store.unprotect(tier, hold)
        if freeing_moves is None:
            return None
        self.mover.issue()
        return Active(
            request, lease, reused, total - depth, self.now_ns, self._open(loads), self._open(freeing_moves)
        )

    def switch_active_into_cache(self, active: Active, blocks: int, first_layer_ns: int) -> Switched:
        """Turn the next full active blocks, computed by now, into cached and shareable ones.

        Their first layer was ready at ``first_layer_ns``, all of them are now. Where the GPU has a block
        already the active one is freed and the other held: a duplicate. A write-through policy sends copies
        down. UsageError where the request has not that many active blocks.
        """
        if blocks > active.active_blocks:
            raise UsageError(
                "not that many active blocks", got=str(blocks), expected=f"{active.active_blocks}"
            )
        start = self.store.depth(active.lease)
        end = start + blocks
        merged = self.store.merged_blocks
        self.store.commit(active.lease, end, (first_layer_ns, self.now_ns))
        active.active_blocks -= blocks
        written = None
        for edge in self.machine.writes[:1]:
            written = edge.committed(self.store, active.lease, (start, end), self.now_ns)
        transfers = self._issue()
        duplicates = self.store.merged_blocks - merged
        return Switched(blocks - duplicates, duplicates, None if written is None else transfers[written])

    def release(self, active: Active) -> None:
        """End a request: its blocks stay, most recently used; what was never switched is free."""
        self.store.release(active.lease, self.now_ns)
        active.active_blocks = 0

    # -- within

    def _evicted(self) -> dict[str, int]:
        """Return the blocks that each tier has evicted so far."""
        return {
            name: self.store.eviction_counts(level).evicted_blocks for level, name in enumerate(self.tiers)
        }

    def _level(self, tier: str) -> int:
        if tier not in self.tiers:
            raise UsageError("no such tier", got=tier, expected=f"one of {', '.join(self.tiers)}")
        return self.tiers.index(tier)

    def _open(self, moves: Sequence[int]) -> tuple[NativeTransfer, ...]:
        transfers = self.mover.transfers
        return tuple(transfers[move] for move in dict.fromkeys(moves) if move in transfers)

    def _issue(self) -> Mapping[int, NativeTransfer]:
        """Send what the store has decided; return the transfers by move."""
        self.mover.issue()
        return self.mover.transfers

    def _on_tier(self, tier: int, request: int, blocks: tuple[int, int]) -> list[int]:
        """Return the move writing each block to a tier, NO_COPY where it is not there."""
        start, end = blocks
        moves: list[int] = []
        for past, by in self.store.copies(request, end):
            moves += [by[tier] if tier < len(by) else NO_COPY] * (past - len(moves))
        moves += [NO_COPY] * (end - len(moves))
        return moves[start:end]

    def _only_on(self, source: int, target: int, request: int, blocks: tuple[int, int]) -> list[int]:
        """Return the moves writing blocks to their source; UsageError where reading them up has no sense."""
        moves = self._on_tier(source, request, blocks)
        if NO_COPY in moves:
            raise UsageError(
                "a block is not there", got=f"blocks {blocks}", expected=f"all on {TIERS[source]}"
            )
        if any(move != NO_COPY for move in self._on_tier(target, request, blocks)):
            raise UsageError(
                "a block is there already", got=f"blocks {blocks}", expected=f"none on {TIERS[target]}"
            )
        return moves
