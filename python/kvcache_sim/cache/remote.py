"""Reads from other machines: who has the longest continuation, and how its KV comes here (semantics 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.staging import is_staged, stage_up
from kvcache_sim.cache.transfer import HOP, Transfer
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.channels.channel import layer_ns
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.tiers import LOAD_EDGES, STAGING, load_edge

#: A part of a run on another machine: (tier there, first block, past the last, move still writing it).
Part = tuple[int, int, int, int]


class RemoteRun(NamedTuple):
    """The continuation of a local run on one other machine."""

    owner: int
    parts: list[Part]

    @property
    def end(self) -> int:
        """The block after its last one."""
        return self.parts[-1][2]


class _Source(NamedTuple):
    owner: Mover
    store: TieredStore
    tier: int
    #: The hold there, and the move that still writes what is read.
    lent: int
    by: int


class RemoteReads:
    """What one machine reads from the lower tiers of the others. Always copies, to where KV is staged here.

    Landing room is reserved before the source is held; the source is held until it has been read, and its
    readiness waited for. What lies below the tier that the network reads comes in one move over all channels
    on its way, the owner's and the network's, layer by layer; ``staged`` copies it up to that tier of the
    owner first, where that has room. ``movers``: those of the machines that are read, by number, also of
    machines built later than this one.
    """

    def __init__(
        self,
        mover: Mover,
        store: TieredStore,
        movers: Mapping[int, Mover],
        channels: Channels,
        staged: bool,
    ) -> None:
        self.mover = mover
        self.store = store
        self.movers = movers
        self.channels = channels
        self.staged = staged
        #: By machine who hears of each read of a request's blocks (first, past the last) there.
        self.when_read: dict[int, Callable[[int, tuple[int, int]], None]] = {}

    def longest(self, request: int, start: int, limit: int) -> RemoteRun | None:
        """Return the longest run of blocks from ``start`` on that one other machine has below its GPU.

        Ties: the earlier estimated arrival, then the lower machine number. Cost: a look-up a machine.
        """
        runs = []
        for owner, mover in self.movers.items():
            if mover is not self.mover and mover.tree is not None:
                parts = mover.tree.match_below(request, start, limit)
                if parts:
                    runs.append(RemoteRun(owner, parts))
        if not runs:
            return None
        reach = max(run.end for run in runs)
        tied = [run for run in runs if run.end == reach]
        return tied[0] if len(tied) == 1 else min(tied, key=lambda run: (self.estimate_ns(run), run.owner))

    def estimate_ns(self, run: RemoteRun) -> int:
        """Return about how long it takes until the run has landed, by the channels' queues now."""
        owner = self.movers[run.owner]
        network = self.channels.between(run.owner, self.mover.machine)
        total = self._time(network, run.end - run.parts[0][1])
        for level, edge in enumerate(LOAD_EDGES[STAGING:], STAGING + 1):
            below = sum(end - start for tier, start, end, _ in run.parts if tier >= level)
            if below:
                total = max(total, self._time(owner.channels[edge], below))
        return total

    def _time(self, channel: AnyChannel, blocks: int) -> int:
        mover, pieces = self.mover, blocks * self.mover.layers
        occupied = mover.layers * layer_ns(channel.settings, blocks * mover.block_bytes, pieces, mover.layers)
        return channel.wait_ns(mover.engine.now_ns, pieces) + channel.settings.latency_ns + occupied

    def fetch(self, request: int, owner: int, part: Part, now_ns: int) -> int | None:
        """Read one part of a run; return the move that lands it, None when that is refused."""
        tier, start, end, by = part
        there = self.movers[owner]
        its_store = there.tree
        assert its_store is not None, "it was found there"
        if self.staged and its_store.match_below(request, start, end) != [part]:
            return None  # staging an earlier part has pushed this one out there
        move = self.store.receive(request, (start, end), now_ns)
        if move is None:
            return None
        there.catch_up()
        if tier > STAGING and self.staged:
            copies = stage_up(its_store, request, (start, end), (tier, by), now_ns)
            there.issue()
            if is_staged(copies):
                tier, by = STAGING, copies[-1][1]
        lent = its_store.lend(request, end, tier)
        if owner in self.when_read:
            self.when_read[owner](request, (start, end))
        self.mover.reads_remote(move, partial(self._connect, _Source(there, its_store, tier, lent, by)))
        return move

    def _connect(self, source: _Source, transfer: Transfer) -> Transfer:
        owner = source.owner
        transfer.take(self.channels.between(owner.machine, self.mover.machine))
        transfer.at_completion.append(partial(self._give_back, source))
        first = transfer
        for level in range(STAGING + 1, source.tier + 1):
            hop = Transfer(owner, HOP, level, level - 1, transfer.blocks)
            hop.take(owner.channels[load_edge(level)])
            first.wait_for(hop)
            first.follow(hop)
            first = hop
        before = owner.transfers.get(source.by)
        if before is not None:
            first.wait_for(before)
            if before.from_tier > before.to_tier == source.tier:
                first.follow(before)
        if source.tier == STAGING:
            owner.read_bytes[STAGING] += transfer.blocks * owner.block_bytes
        return first

    def _give_back(self, source: _Source) -> None:
        owner = source.owner
        owner.catch_up()
        source.store.finish_move(source.lent)
        owner.moved()
