"""The parts of TTFT that are waits for KV or free blocks, each ns under its cause (semantics 2 and 4).

An admitted request waits for the blocks that evictions free, and for KV from lower tiers or from another
machine. The wait from its admission until it can join a step is charged first to the evictions, then to the
sources of its KV, fast to slow, each until its own part has arrived: the parts sum to the wait. With layer
pipelining KV counts as arrived at its first layer; missing layers then stall the step. Layer k of the step
starts when layer k - 1 is computed and its KV has arrived: the step ends at max(t + L·c, first + L·c, last +
c) (semantics 4; the recurrence if layers arrive unevenly). The excess is the loading request's ``fetch`` and
its batch mates' ``batch_stall``, a part of their prefill. The same waits are also split by hop: until the
lowest hop had brought the layers that the next hop needed, the wait belongs to the lowest hop, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, STAGING
from kvcache_sim.spec.channels import Transmission
from kvcache_sim.spec.mover import Mover, Transfer
from kvcache_sim.spec.request import Admission, OrderedLoad, SequenceState


class Arrived(NamedTuple):
    """A layer (from 0) that a transfer has brought."""

    transfer: Transfer
    layer: int


class Loading:
    """An admitted request until it has its blocks and its KV, or the first layer of it.

    ``on_ready`` is called then.
    """

    def __init__(
        self, sequence: SequenceState, admission: Admission, mover: Mover, on_ready: Callable[[Loading], None]
    ) -> None:
        self.sequence, self.admission, self._mover, self._on_ready = sequence, admission, mover, on_ready
        self._pipelining, self._layers = mover.pipelining, mover.layers
        self._tiers: dict[int, int] = {}
        #: Transfers that bring its KV and were unfinished when they were ordered.
        self.transfers: list[Transfer] = []
        self._freeing = {move for move in admission.freeing_moves if move in mover.transfers}
        self._kv: set[int] = set()
        for move in self._freeing:
            mover.transfers[move].watchers.append(self._arrived)
        #: Ends of the waits for blocks and for KV of each source, and the layer that arrived then.
        self._freed_end_ns = 0
        self._ends_ns = [0] * len(KV_SOURCES)
        self._last: dict[int, Arrived] = {}
        #: The layer that a step's stall was for, and its arrival.
        self._latest: Arrived | None = None
        self._latest_ns = 0
        self._await(admission.loads)

    def _await(self, loads: list[OrderedLoad]) -> None:
        """Wait for the KV of loads, unless its first layer is here and that is enough."""
        now = self._mover.engine.now_ns
        for move, source in loads:
            self._tiers[move] = source
            if (transfer := self._mover.transfers.get(move)) is not None:
                self.transfers.append(transfer)
                began = transfer.sent is not None and transfer.sent.first_layer_ns <= now
                if not (self._pipelining and began):
                    self._kv.add(move)
                    transfer.watchers.append(self._arrived)

    def await_loads(self) -> None:
        """Wait for the loads that were ordered since, as there was space for more of its KV."""
        self._await([load for load in self.admission.loads if load.move not in self._tiers])
        if not self.waits():
            self._end(self._mover.engine.now_ns)

    def waits(self) -> bool:
        """Return True if free blocks or KV are missing."""
        return bool(self._freeing or self._kv or self.admission.rest_end)

    def _arrived(self, transfer: Transfer, complete: bool) -> None:
        if not self.waits():
            return
        assert transfer.sent is not None
        now = transfer.sent.completion_ns if complete else transfer.sent.first_layer_ns
        if complete and transfer.move in self._freeing:
            self._freeing.discard(transfer.move)
            self._freed_end_ns = now
        if transfer.move in self._kv and (complete or self._pipelining):
            self._kv.discard(transfer.move)
            position = self._tiers[transfer.move]
            self._ends_ns[position] = now
            self._last[position] = Arrived(transfer, self._layers - 1 if complete else 0)
        if not self.waits():
            self._end(now)

    def _end(self, now_ns: int) -> None:
        self._charge(now_ns)
        self._on_ready(self)

    def _charge(self, now_ns: int) -> None:
        """Split the wait since the admission among evictions and sources."""
        s = self.sequence
        if s.first_token_ns >= 0:  # it was preempted: its TTFT is over
            return
        at = max(s.since_ns, self._freed_end_ns)
        s.fetch_room_ns += at - s.since_ns
        for position, end in enumerate(self._ends_ns):
            if end > at:
                s.fetch_by_source_ns[_charged(position)] += end - at
                _charge_hops(s, self._last[position], at, end)
                at = end
        s.fetch_room_ns += now_ns - at  # KV that waited for space was loaded by another request
        s.since_ns = now_ns

    # -- KV that still arrives while a step computes

    def late_until(self, start_ns: int, compute_ns: int) -> int:
        """Return the earliest end of a step from ``start_ns`` that needs this KV layer by layer.

        From the arrival of layer k on, layers k to L are still to be computed. If layers arrive evenly, the
        first and the last layer decide.
        """
        layers, end = self._layers, start_ns + compute_ns
        for transfer in self.transfers:
            sent = transfer.sent
            if sent is None or sent.completion_ns <= start_ns:
                continue
            ends = ((0, sent.first_layer_ns), (layers - 1, sent.completion_ns))
            for computed, arrival in enumerate(sent.arrivals_ns) if sent.arrivals_ns else ends:
                late = arrival - (-compute_ns * (layers - computed) // layers)
                if late > end:
                    end = late
                    self._latest, self._latest_ns = Arrived(transfer, computed), arrival
        return end

    def unsettled(self) -> list[Transfer]:
        """Return the transfers whose times are not final yet."""
        return [t for t in self.transfers if t.sent is not None and not t.sent.settled]

    def charge_stall(self, stall_ns: int) -> None:
        """Charge a step's excess to the slowest source that this request reads from."""
        s = self.sequence
        if s.first_token_ns >= 0:
            return
        s.fetch_by_source_ns[_charged(max(self._tiers.values(), default=STAGING))] += stall_ns
        s.since_ns += stall_ns
        if stall_ns:
            assert self._latest is not None, "something was late"
            _charge_hops(s, self._latest, self._latest_ns - stall_ns, self._latest_ns)


def _charged(position: int) -> int:
    """Return the source that a wait is charged to: blocks that another request loads come from below."""
    return STAGING if position == COMPUTE else position


def _charge_hops(s: SequenceState, came: Arrived, start: int, end: int) -> None:
    """Split a wait from ``start`` to ``end`` (ns) for a layer of a transfer among the hops that it crossed.

    A hop that feeds the next hop has to bring the layer itself; a hop that is stored first brings all layers.
    A hop that finished before the wait began has no part in it.
    """
    chain = [came]
    while (hop := chain[-1].transfer).below is not None:
        feeds = hop.streams and hop.below.feeds(hop)
        chain.append(Arrived(hop.below, chain[-1].layer if feeds else hop.mover.layers - 1))
    for hop, layer in reversed(chain[1:]):
        at = min(max(_arrival_ns(hop.sent, layer), start), end)
        s.stall_by_hop_ns[hop.edge] += at - start
        start = at
    s.stall_by_hop_ns[came.transfer.edge] += end - start


def _arrival_ns(sent: Transmission | None, layer: int) -> int:
    if sent is None:
        return 0
    if layer < len(sent.arrivals_ns):
        return sent.arrivals_ns[layer]
    return sent.first_layer_ns if layer == 0 else sent.completion_ns
