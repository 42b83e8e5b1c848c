"""Manual cache operations on one machine: every operation of seed 001 with its timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, REMOTE, STAGING, TIERS
from kvcache_sim.cache.fetch.policy import Part
from kvcache_sim.cache.operations.listing import (
    ListedBlock,
    list_blocks,
    ready_by,
    request_of_keys,
    request_of_tokens,
)
from kvcache_sim.cache.operations.operated_store import OperatedStore
from kvcache_sim.cache.operations.transfer import Active, NativeTransfer, Space, Switched
from kvcache_sim.cache.store import NO_MOVE, BlockRange, Times
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.engine import NO_MACHINE, SAMPLE
from kvcache_sim.workload.block_names import BlockTokens

#: As a limit, more blocks than any path has.
NO_LIMIT = 0xFFFF_FFFF


class MachineCache(OperatedStore):
    """One machine's tiers, its trie and its channels, at the current time of the machines' common clock.

    An operation happens now and returns at once, with the times (ns) of its effects; `run_until` advances
    time. ``request`` is an index in the trace; ``(start, end)`` is a range of blocks of its path, ``end``
    excluded. An operation returns None and changes nothing if leases leave too few free blocks.
    Cost: that of the store's own operations.
    """

    # -- time

    def run_until(self, ns: int) -> None:
        """Advance all machines to time ``ns``, events at that time included."""
        self.engine.schedule(ns, SAMPLE, NO_MACHINE, lambda _: None)
        self.engine.run(until_ns=ns)
        for machine in self._machines:
            machine.expire()

    # -- basic operations: lookup, transmit, mark

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
        """Return the leading blocks that are found, with all their copies. Recency does not change.

        A block is found if this machine has it on any tier. With cluster lookup the longest continuation
        below the GPU of one other machine follows. Copies still being written are listed too.

        Args:
            request: Index of the request to look up.
            limit: Most blocks; None: no limit.
            contents: Contents of the trace's blocks, needed for ``tokens``.
            keys: Keys of the blocks to look up, from the first.
            tokens: Token ids to look up, from the first.
            at_ns: Time in ns, now or later: only copies known to be ready by then are listed, and the run
                ends at the first block without a reachable one. None: all copies.

        Returns:
            The found blocks, in the order of the prompt.

        Raises:
            UsageError: Not exactly one of request, keys and tokens; tokens without ``contents``; a past time.
        """
        request, blocks = self._looked_up(request, keys, tokens, contents)
        limit = blocks if limit is None else min(limit, blocks)
        found = self.store.peek(request, limit)[0]
        reads_others = self.machine.reads_others
        if reads_others and found < limit:
            away = self.mover.longest(request, found, limit)
            found = found if away is None else away[1][-1][2]
        trees = {machine.number: machine.tree for machine in self._machines}
        listed = list_blocks(trees, request, found, self.names, contents, replicas=self.mover.replicas)
        if at_ns is None:
            return listed
        self._not_past(at_ns)
        here, gpu = self.mover.machine, TIERS[COMPUTE]
        return ready_by(listed, at_ns, lambda c: c.machine == here or (reads_others and c.tier != gpu))

    def _not_past(self, at_ns: int) -> None:
        if at_ns < self.now_ns:
            raise UsageError("a time that has passed", "at_ns", str(at_ns), f"{self.now_ns} or later")

    def _looked_up(
        self,
        request: int | None,
        keys: Sequence[int] | None,
        tokens: Sequence[int] | None,
        contents: BlockTokens | None,
    ) -> tuple[int, int]:
        """Return the request whose path a lookup follows, and the most blocks that it may find."""
        if sum(given is not None for given in (request, keys, tokens)) != 1:
            raise UsageError("what to look up", "match_prefix", expected="a request, keys or tokens")
        if keys is not None:
            return request_of_keys(self.names, keys)
        if tokens is not None:
            if contents is None:
                raise UsageError("tokens without contents", "match_prefix", expected="contents with tokens")
            return request_of_tokens(self.names, contents, tokens)
        assert request is not None
        return request, NO_LIMIT

    def transmit(
        self, edge: str, tokens: int, at_ns: int | None = None, layers: int | None = None
    ) -> Transmission:
        """Launch one transmission over an edge's channel, queued after earlier ones (semantics 3).

        Args:
            edge: Name of the edge, for example ``cpu->gpu``.
            tokens: Number of tokens whose KV is sent.
            at_ns: Time of the call, in ns: the machines run until then. None: now.
            layers: Equal layers that it is sent in. None: the model's.

        Returns:
            Its start, first layer, completion and time per layer in ns; ``times`` are seed 001's three.

        Raises:
            UsageError: No such edge or layer; fewer than 0 tokens; a past time; a channel by layer.
        """
        if edge not in self.mover.channels:
            raise UsageError("no such edge", got=edge, expected=f"one of {', '.join(self.mover.channels)}")
        channel = self.mover.channels[edge]
        if channel.by_layer:
            raise UsageError("times are not final when a job is queued", edge, expected="sharing fifo")
        if tokens < 0:
            raise UsageError("fewer than no tokens", edge, got=str(tokens), expected="0 or more")
        if layers is not None and layers < 1:
            raise UsageError("no layer to send", edge, got=str(layers), expected="1 or more")
        if at_ns is not None:
            self._not_past(at_ns)
            self.run_until(at_ns)
        sent = layers or self.mover.layers
        pieces = -(-tokens // self.machine.cache.block_size_tokens) * sent
        size = tokens * self.machine.cache.kv_bytes_per_token
        self.mover.count(edge, size)
        return channel.transmit(size, pieces, sent, self.now_ns)

    def mark(
        self, space: Space, request: int, start: int, sent: Transmission, source: str | None = None
    ) -> NativeTransfer | None:
        """Mark blocks present in acquired space, ready at the times of a transmission.

        Until then lookups find the blocks, but they are not ready.

        Args:
            space: Acquired space; its size is the number of blocks.
            request: Index of the request.
            start: Its first block to mark.
            sent: Times of the transmission.
            source: Tier that they are read from and held on until then; None: none.

        Returns:
            The transfer. None, nothing marked, if a block is on the tier already, not on the source, or does
            not follow a found block.

        Raises:
            UsageError: The transmission starts before the space is free.
        """
        free_at_ns = space.ready_at_ns if space.is_final else None
        if free_at_ns is None or sent.start_ns < free_at_ns:
            raise UsageError(
                "written before the space is free",
                got=f"{sent.start_ns} ns",
                expected="a time that is not known yet" if free_at_ns is None else f"{free_at_ns} ns",
            )
        origin = None if source is None else self._level(source)
        part = BlockRange(start, start + space.blocks)
        if not self.store.fill_claim(space.move, request, part, origin):
            return None
        level = self._level(space.tier)
        self.store.set_times(space.move, sent.first_layer_ns, sent.completion_ns)
        source_level = REMOTE if origin is None else origin
        return self.mover.arrive(space.move, source_level, level, space.blocks, sent)

    def mark_absent(self, request: int, blocks: tuple[int, int], tier: str) -> int:
        """Mark blocks absent on a tier, last first, up to the first block that must stay.

        A block stays if it is held, being written, or followed by a block on that tier. Nothing is written
        to lower tiers; a block that loses its last copy leaves the trie.

        Args:
            request: Index of the request.
            blocks: (first, past the last) block.
            tier: Name of the tier.

        Returns:
            The number of blocks marked absent.
        """
        return self.store.remove(request, BlockRange(*blocks), self._level(tier))

    # -- space

    def acquire_space(self, tier: str, blocks: int) -> Space | None:
        """Acquire blocks on a tier: evict the shortfall, and write victims without a copy below first.

        The seed's synced_acquire_space.

        Args:
            tier: Name of the tier.
            blocks: Number of blocks.

        Returns:
            The space, owned by the caller and free at its ``ready_at_ns``; None if leases prevent it.
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
        """Release acquired space as soon as it is free."""
        transfers = self.mover.transfers
        waits = [transfer for transfer in space.written if transfer.move in transfers]
        if waits:
            self.mover.on_complete(waits, partial(self.store.release_claim, space.move))
        else:
            self.store.release_claim(space.move)

    def evict(self, tier: str, blocks: int) -> Space | None:
        """Evict blocks from a tier: least recently used leaves first, deepest first.

        Victims without a copy below are written there first; on the lowest tier they are discarded.

        Args:
            tier: Name of the tier.
            blocks: Number of blocks.

        Returns:
            The space, released to the tier once it is free; None if leases prevent the eviction.
        """
        space = self.acquire_space(tier, self.store.occupancy(self._level(tier)).free_blocks + blocks)
        if space is not None:
            self.release_space(space)
        return space

    def discard(self, request: int, end: int) -> int:
        """Discard the last blocks of a path from all tiers and the trie; return their number.

        Discarding stops at the first block (from ``end`` backwards) that is held, in flight or has children.
        """
        found = self.store.peek(request, end)[0]
        self.store.discard(request, 0, found)
        return found - self.store.peek(request, end)[0]

    # -- moves between tiers

    def fetch_to_memory(self, request: int, blocks: tuple[int, int]) -> NativeTransfer | None:
        """Copy blocks from disk to memory: acquire space on the cpu, transmit, mark present there.

        The seed's synced_fetch_from_disk_to_memory. The transmission waits for the space, and for blocks that
        are still being written to the disk.

        Args:
            request: Index of the request.
            blocks: (first, past the last) block.

        Returns:
            The transfer; None if leases leave too few blocks on the cpu.

        Raises:
            UsageError: A block is not on the disk, or is on the cpu already.
        """
        span = BlockRange(*blocks)
        moves = self._only_on(STAGING + 1, STAGING, request, span)
        ready = max((move for move in moves if move != NO_MOVE), default=None)
        move = self.store.stage(request, span, STAGING, ready, self.now_ns)
        if move is None:
            return None
        return self._issue()[move]

    def fetch_from_remote(self, request: int, limit: int) -> list[NativeTransfer]:
        """Copy the longest continuation of this machine's run on one other machine into the own cpu tier.

        Blocks on its cpu cross the network, blocks on its disk both channels; they are held until read.

        Args:
            request: Index of the request.
            limit: Most leading blocks of the run.

        Returns:
            The transfers, in order; they end at the first part without free blocks here.

        Raises:
            UsageError: Lookup is local.
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
        """Hold found GPU blocks, load lower-tier blocks, and reserve active blocks: all or nothing.

        Reuse ends at the first part that cannot be staged on the cpu; its blocks become active blocks.

        Args:
            request: Index of the request.
            reuse: Most leading blocks to reuse.
            active: Number of active blocks to reserve.

        Returns:
            The held blocks and their transfers; None if leases leave too few blocks on the GPU.
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
        """Turn the next full active blocks, computed by now, into cached, shareable blocks.

        If the GPU already has a block, the active block is freed and the other held: a duplicate. A
        write-through policy sends copies down.

        Args:
            active: The request's blocks.
            blocks: Number of blocks to switch.
            first_layer_ns: Time (ns) at which their first layer was ready; all layers are ready now.

        Returns:
            The numbers of new and duplicate blocks, and the write to the next tier.

        Raises:
            UsageError: The request has fewer active blocks.
        """
        if blocks > active.active_blocks:
            raise UsageError("not that many active blocks", "", str(blocks), str(active.active_blocks))
        self.run_until(self.now_ns)  # ends what takes no time: writes of victims that nothing could store
        start = self.store.depth(active.lease)
        end = start + blocks
        merged = self.store.merged_blocks
        self.store.commit(active.lease, end, Times(first_layer_ns, self.now_ns))
        active.active_blocks -= blocks
        written = None
        for edge in self.machine.writes[:1]:
            written = edge.committed(self.store, active.lease, BlockRange(start, end), self.now_ns)
        transfers = self._issue()
        duplicates = self.store.merged_blocks - merged
        return Switched(blocks - duplicates, duplicates, None if written is None else transfers[written])

    def release(self, active: Active) -> None:
        """End a request: cached blocks stay, most recently used; its active blocks are freed."""
        self.store.release(active.lease, self.now_ns)
        active.active_blocks = 0
