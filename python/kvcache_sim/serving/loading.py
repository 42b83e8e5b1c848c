"""A request between admission and its first step: it waits for room and for KV."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.serving.admission import Admission
from kvcache_sim.serving.hops import split_by_hop
from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.tiers import COMPUTE, PLACES, STAGING


class Loading:
    """Counts down what an admitted request waits for, and charges each nanosecond of the wait to its cause.

    With layer pipelining KV counts as there from its first layer on; what is still missing then stalls the
    step, which is charged at its start.
    """

    __slots__ = (
        "_ends",
        "_last",
        "_latest",
        "_layers",
        "_mover",
        "_on_ready",
        "_pipelining",
        "_room",
        "_room_end",
        "_sources",
        "_told",
        "_waits",
        "admission",
        "sequence",
        "transfers",
    )

    def __init__(
        self, sequence: SequenceState, admission: Admission, mover: Mover, on_ready: Callable[[Loading], None]
    ) -> None:
        self.sequence = sequence
        self._mover = mover
        self.admission = admission
        self.transfers: list[Transfer] = []
        self._on_ready = on_ready
        self._room = {m for m in admission.room if m in mover.transfers}
        self._sources = dict(admission.loads)
        self._waits: set[int] = set()
        #: When room, and KV of each place, were last waited for, and which layer of what came then.
        self._room_end = 0
        self._ends = [0] * len(PLACES)
        self._last: dict[int, tuple[Transfer, int]] = {}
        #: What a step's stall was for.
        self._latest: tuple[Transfer, int, int] | None = None
        now = mover.engine.now_ns
        for move, _ in admission.loads:
            transfer = mover.transfers.get(move)
            if transfer is None:
                continue
            self.transfers.append(transfer)
            if not (mover.pipelining and transfer.sent is not None and transfer.sent.first_layer_ns <= now):
                self._waits.add(move)
        for move in self._room | self._waits:
            mover.transfers[move].watchers.append(self._arrived)
        self._pipelining = mover.pipelining
        self._layers = mover.layers
        self._told = False

    def waiting(self) -> bool:
        """Return whether anything is still missing."""
        return bool(self._room or self._waits)

    def _arrived(self, transfer: Transfer, complete: bool) -> None:
        if self._told:
            return
        now = transfer_time(transfer, complete)
        if complete and transfer.move in self._room:
            self._room.discard(transfer.move)
            self._room_end = now
        if transfer.move in self._waits and (complete or self._pipelining):
            self._waits.discard(transfer.move)
            place = self._sources[transfer.move]
            self._ends[place] = now
            self._last[place] = (transfer, self._layers - 1 if complete else 0)
        if not self.waiting():
            self._told = True
            self._charge(now)
            self._on_ready(self)

    def _charge(self, now_ns: int) -> None:
        """Split the wait since admission among room and places, fast to slow; the parts sum to it."""
        s = self.sequence
        if s.first_token_ns >= 0:  # back after a preemption: its TTFT is over
            return
        at = max(s.since_ns, self._room_end)
        s.fetch_room_ns += at - s.since_ns
        for place, end in enumerate(self._ends):
            if end > at:
                s.charge_fetch(_charged(place), end - at)
                transfer, layer = self._last[place]
                s.charge_hops(split_by_hop(transfer, (at, end), layer))
                at = end
        assert at == now_ns, "the wait ends with its last cause"
        s.since_ns = now_ns

    def late_until(self, start_ns: int, compute_ns: int, layers: int) -> int:
        """Return when a step from ``start_ns`` that needs this KV layer by layer can end (semantics 4).

        From the arrival of layer k on, layers k … L are still to be computed. Where layers come evenly the
        first and the last one decide (the closed form); else each one counts (the recurrence).
        """
        end = start_ns + compute_ns
        for transfer in self.transfers:
            sent = transfer.sent
            if sent is None or sent.completion_ns <= start_ns:
                continue
            arrivals = sent.arrivals_ns
            ends = ((0, sent.first_layer_ns), (layers - 1, sent.completion_ns))
            for computed, arrival in enumerate(arrivals) if arrivals else ends:
                late = arrival - (-compute_ns * (layers - computed) // layers)
                if late > end:
                    end = late
                    self._latest = transfer, computed, arrival
        return end

    def still_comes(self) -> bool:
        """Return whether KV is still on its way: layers behind the first ones."""
        return any(self._mover.transfers.get(transfer.move) is transfer for transfer in self.transfers)

    def unsettled(self) -> list[Transfer]:
        """Return the transfers whose times are not final yet."""
        return [t for t in self.transfers if t.sent is not None and not t.sent.settled]

    def charge_stall(self, stall_ns: int) -> None:
        """Charge a step's excess to the slowest place this request reads from."""
        s = self.sequence
        if s.first_token_ns >= 0:
            return
        s.charge_fetch(_charged(max(self._sources.values(), default=STAGING)), stall_ns)
        s.since_ns += stall_ns
        if stall_ns:
            assert self._latest is not None, "something was late"
            transfer, layer, arrival = self._latest
            s.charge_hops(split_by_hop(transfer, (arrival - stall_ns, arrival), layer))

    def note_demand(self, loads: dict[AnyChannel, int]) -> None:
        """Add to ``loads``, by channel, the bytes that this request's step uses as they arrive."""
        for transfer in self.transfers:
            hop: Transfer | None = transfer
            while hop is not None:
                assert hop.channel is not None
                loads[hop.channel] = loads.get(hop.channel, 0) + hop.size_bytes
                hop = hop.below


def _charged(place: int) -> int:
    """Return the place that a wait is charged to: what another request loads comes from below."""
    return STAGING if place == COMPUTE else place


def transfer_time(transfer: Transfer, complete: bool) -> int:
    """Return the moment of a transfer's first layer or completion."""
    assert transfer.sent is not None
    return transfer.sent.completion_ns if complete else transfer.sent.first_layer_ns
