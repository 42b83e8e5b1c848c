"""Reads from other machines (seed 001, "Remote"; semantics 4).

KV moves across machines only from a CPU or a disk, and arrives on the reader's CPU first. Copies are read,
never moved. With ``lookup: cluster`` the longest local run is extended by the one machine with the longest
continuation; ties go to the earlier estimated arrival, then to the lower machine number. Target blocks are
reserved before the source is held; if refused, nothing is read. The source is held until it has been read;
the read waits until it is ready. A remote disk is read in one move over both channels, layer by layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from kvcache_sim.base.tiers import LOAD_EDGES, REMOTE, STAGING, load_edge
from kvcache_sim.cache.store import NO_MOVE, BlockRange
from kvcache_sim.spec.block_store import Away, Part
from kvcache_sim.spec.channels import Channel, Channels
from kvcache_sim.spec.mover import HOP, Mover, Transfer


class Source(NamedTuple):
    """Blocks to read: their owner and tier there, the move that still writes them, and their hold there."""

    owner: Mover
    tier: int
    by: int
    lent: int = NO_MOVE


class RemoteReads:
    """The reads of one machine from the lower tiers of others; ``movers`` are those of the machines read."""

    def __init__(self, mover: Mover, movers: Mapping[int, Mover], channels: Channels) -> None:
        self.mover, self.movers, self.channels = mover, movers, channels

    def longest(self, request: int, start: int, limit: int) -> list[Part]:
        """Return the longest run of one other machine from block ``start`` to at most ``limit``, in parts."""
        runs = []
        for owner, mover in self.movers.items():
            if mover is not self.mover:
                found = mover.store.match_below(request, start, limit)
                if found:
                    runs.append(
                        [Part(REMOTE, start, end, by, Away(owner, tier)) for tier, start, end, by in found]
                    )
        if not runs:
            return []
        reach = max(run[-1].end for run in runs)
        tied = [run for run in runs if run[-1].end == reach]
        if len(tied) == 1:
            return tied[0]
        return min(tied, key=lambda run: (self._estimate_ns(run), _away(run[0]).owner))

    def _estimate_ns(self, run: list[Part]) -> int:
        """Return the estimated time (ns) until a run has arrived, by the channels' current queues."""
        owner = _away(run[0]).owner
        network = self.channels.between(owner, self.mover.machine)
        total = self._time_ns(network, run[-1].end - run[0].start)
        for level, edge in enumerate(LOAD_EDGES[STAGING:], STAGING + 1):
            below = sum(part.end - part.start for part in run if _away(part).tier >= level)
            if below:
                total = max(total, self._time_ns(self.movers[owner].channels[edge], below))
        return total

    def _time_ns(self, channel: Channel, blocks: int) -> int:
        return channel.expected_ns(self.mover.size_of(blocks), self.mover.engine.now_ns).last_layer_ns

    def fetch(self, request: int, part: Part, now_ns: int) -> int | None:
        """Read one part of another machine's run; return the move that writes it here, None if refused."""
        move = self.mover.store.receive(request, BlockRange(part.start, part.end), now_ns)
        if move is None:
            return None
        source = self._source(request, part, now_ns)
        lent = source.owner.store.lend(request, part.end, source.tier)
        self.mover.connects[move] = partial(self._connect, source._replace(lent=lent))
        return move

    def _source(self, request: int, part: Part, now_ns: int) -> Source:
        """Return the source of a part, which nothing holds yet."""
        away = _away(part)
        return Source(self.movers[away.owner], away.tier, part.by)

    def _connect(self, source: Source, transfer: Transfer) -> Transfer:
        """Assign a read its channel, and the owner's hops that feed it; return the first hop."""
        owner = source.owner
        transfer.channel = self.channels.between(owner.machine, self.mover.machine)
        transfer.at_completion.append(partial(self._release, source))
        first = transfer
        for level in range(STAGING + 1, source.tier + 1):
            hop = Transfer(owner, HOP, level, level - 1, transfer.blocks)
            hop.channel = owner.channels[load_edge(level)]
            first.wait_for(hop)
            first.below = hop
            first = hop
        before = owner.transfers.get(source.by)
        if before is not None:
            first.wait_for(before)
            if before.from_tier > before.to_tier == source.tier:
                first.below = before
        if source.tier == STAGING:
            owner.read_bytes[STAGING] += transfer.size_bytes
        return first

    def _release(self, source: Source) -> None:
        source.owner.store.finish_move(source.lent)
        source.owner.moved()


def _away(part: Part) -> Away:
    assert part.away is not None, "a part of another machine"
    return part.away
