"""A composed step until it starts: it waits for evicted room, for final arrival times, and stalls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.serving.batch_contract import Batch
from kvcache_sim.serving.loading import Loading
from kvcache_sim.serving.read_buffers import ReadBuffers
from kvcache_sim.serving.replica.copy_cost import CopyCost
from kvcache_sim.serving.sequence import SequenceState


class NextStep:
    """The step that a replica has composed and not started. ``start(begin_ns, stall_ns)`` starts it.

    It waits until the room that its requests took is free, then, where times are final only as they come,
    until those of all KV still arriving are; none of these is past the step's end.
    """

    def __init__(
        self,
        mover: Mover,
        batch: Batch,
        running: dict[int, SequenceState],
        late: list[Loading],
        start: Callable[[int, int], None],
        copies: CopyCost | None = None,
    ) -> None:
        self.mover = mover
        self.batch = batch
        self.running = running
        self._start = start
        #: What copies take from the step; None: nothing.
        self._copies = copies
        #: Requests that joined the step while their KV still arrives.
        self.late = late
        #: Moves whose room the step waits for.
        self._room: set[int] = set()
        self._composed_ns = 0
        #: Transfers whose final times the step waits for, to know its end.
        self._unsettled: set[Transfer] = set()

    @property
    def waits(self) -> bool:
        """Whether a step is composed and waits."""
        return bool(self._room or self._unsettled)

    def prepare(self, moves: Sequence[int], now: int) -> None:
        """Start the step when these moves have ended."""
        if not moves and not self.late:
            self._begin(now)
            return
        self._composed_ns = now
        self._room = {m for m in moves if m in self.mover.transfers}
        if self._room:
            for move in self._room:
                self.mover.transfers[move].watchers.append(self._room_came)
        else:
            self._settle(now)

    def _room_came(self, transfer: Transfer, complete: bool) -> None:
        if not complete or transfer.move not in self._room:
            return
        self._room.discard(transfer.move)
        if self._room:
            return
        now = self.mover.engine.now_ns
        waited = now - self._composed_ns
        for s in self.running.values():
            if s.first_token_ns < 0:
                s.fetch_room_ns += waited
                s.since_ns += waited
        self._settle(now)

    def _settle(self, begin_ns: int) -> None:
        self._composed_ns = begin_ns
        self._unsettled = {transfer for late in self.late for transfer in late.unsettled()}
        for transfer in self._unsettled:
            transfer.watchers.append(self._settled)
        if self._unsettled and self.mover.read_buffer_layers is not None:
            loads = dict.fromkeys(transfer for late in self.late for transfer in late.transfers)
            ReadBuffers(self.mover, tuple(loads), begin_ns, self.batch.step_ns())
        if not self._unsettled:
            self._begin(begin_ns)

    def _settled(self, transfer: Transfer, complete: bool) -> None:
        if complete:
            self._unsettled.discard(transfer)
            if not self._unsettled:
                self._begin(self._composed_ns)

    def _begin(self, begin_ns: int) -> None:
        copies = 0 if self._copies is None else self._copies.take(begin_ns)
        # The GPU begins once the CPU has submitted the copies: KV may arrive meanwhile.
        stall = self._stall(begin_ns + copies) if self.late else 0
        self._start(begin_ns, copies + stall)

    def _stall(self, now: int) -> int:
        """Return how much longer the step takes for KV that is still arriving, and charge it."""
        compute = self.batch.step_ns()
        ends = {late.sequence.request: late.late_until(now, compute, self.mover.layers) for late in self.late}
        stall = max(ends.values()) - (now + compute)
        loads: dict[AnyChannel, int] = {}
        for late in self.late:
            late.note_demand(loads)
        for channel, size in loads.items():
            channel.demand.hide(size, compute)
        for late in self.late:
            late.charge_stall(ends[late.sequence.request] - (now + compute))
        for s in self.running.values():
            if s.first_token_ns < 0:
                s.batch_stall_ns += stall - (ends.get(s.request, now + compute) - (now + compute))
        self.late.clear()
        return stall
