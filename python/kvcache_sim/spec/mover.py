"""The mover: the store's orders as transmissions over channels (seed 001, "Move, Generation, Delete").

A store decides which blocks move; an order has the move, its tiers, its blocks and the moves that must finish
first. Each order becomes one transfer over the channel of its edge, in time order: local moves go between
neighboring tiers only, blocks of another machine arrive on the CPU first (seed 001, "Movements of KV cache
across storage"). A transfer waits for the transfers that free its target or bring its blocks. With layer
pipelining it may leave at the first layer of the transfer that brings its blocks, fed layer by layer; blocks
that a step computes are written through likewise. When a transfer is sent the store gets its times
(``set_storage_layer_info_timestamps``); at its end its blocks are ready, its source is free and the
scheduler resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, REMOTE, STAGING, TIERS
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.cache.store import NO_MOVE, BlockRange, Order, Times
from kvcache_sim.engine import TRANSFER, Engine
from kvcache_sim.spec.block_store import BlockStore, Part
from kvcache_sim.spec.channels import NOT_YET, Channel, LayeredChannel, LayeredJob, Size, Transmission
from kvcache_sim.spec.records import TRANSFER as TRANSFER_RECORD

#: The move of a hop that only feeds another transfer.
HOP = -1


class Staged(NamedTuple):
    """A copy that is read from a tier to the next one up, towards the GPU."""

    from_tier: int
    move: int


class Transfer:
    """A copy of blocks from one tier to the next over one channel."""

    def __init__(self, mover: Mover, move: int, from_tier: int, to_tier: int, blocks: int) -> None:
        self.mover, self.move, self.blocks = mover, move, blocks
        self.from_tier, self.to_tier = from_tier, to_tier
        #: For example ``cpu->gpu`` or ``remote->cpu``.
        self.edge = f"{KV_SOURCES[self.from_tier]}->{KV_SOURCES[self.to_tier]}"
        #: True if it is fed, and feeds, layer by layer.
        self.streams = mover.pipelining
        self.channel: Channel
        #: The transfer that brings the blocks of this one.
        self.below: Transfer | None = None
        self.waits: list[Transfer] = []
        self.dependents: list[Transfer] = []
        #: Its times, once it is on its channel; its job there if the channel is served layer by layer.
        self.sent: Transmission | None = None
        self.job: LayeredJob | None = None
        #: For write-through: times at which a step computed the first and the last layer.
        self.computed: Times | None = None
        #: Called with (transfer, True if complete) at its first layer (pipelining) and at its end.
        self.watchers: list[Callable[[Transfer, bool], None]] = []
        #: Called once it is complete and the store is updated.
        self.at_completion: list[Callable[[], None]] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the blocks that it copies."""
        return self.blocks * self.mover.block_bytes

    def wait_for(self, before: Transfer) -> None:
        """Leave only after ``before`` has arrived."""
        if before not in self.waits:
            self.waits.append(before)
            before.dependents.append(self)

    def feeds(self, after: Transfer) -> bool:
        """Return True if ``after`` forwards the blocks of this transfer, so that it may be fed by it."""
        upwards = self.from_tier > self.to_tier == after.from_tier > after.to_tier
        return self.move == HOP or upwards


class Mover:
    """Sends the orders of one machine's store, and reports arrivals to the store."""

    def __init__(
        self,
        machine: int,
        store: BlockStore,
        engine: Engine,
        channels: Mapping[str, Channel],
        cache: CacheSettings,
        movement: MovementSettings,
    ) -> None:
        self.machine, self.store, self.engine = machine, store, engine
        #: By edge, for example ``gpu->cpu``.
        self.channels = channels
        self.block_bytes, self.layers = cache.block_bytes, cache.num_layers
        self.pipelining = movement.layer_pipelining
        #: Transfers of unfinished moves.
        self.transfers: dict[int, Transfer] = {}
        #: Called once a move is finished.
        self.on_complete: dict[int, Callable[[], None]] = {}
        #: By move that reads from another machine: assigns its channel, returns its first hop.
        self.connects: dict[int, Callable[[Transfer], Transfer]] = {}
        #: Notified of every change of the store.
        self.moved: Callable[[], None] = self.issue
        #: Notified of (tier, move, time) of a move that is about to make blocks ready on a lower tier.
        self.written: Callable[[int, int, int], None] | None = None
        #: Bytes so far by edge, and bytes read from and written to each tier.
        self.edge_bytes: dict[str, int] = {}
        self.read_bytes, self.written_bytes = [0] * len(TIERS), [0] * len(TIERS)

    # -- orders

    def issue(self, computed: Times | None = None) -> None:
        """Send the store's new orders, or queue them behind the transfers that they depend on.

        ``computed``: times at which a step computed the first and the last layer to write through.
        """
        if self.channels:  # a GPU alone has no orders
            for order in self.store.take_orders():
                self._accept(Order(*order), computed)

    def _accept(self, order: Order, computed: Times | None) -> None:
        move, from_tier = order.move, order.from_tier
        if from_tier > order.to_tier + 1:  # KV moves up tier by tier, unless from another machine
            from_tier = REMOTE
        waited = self.transfers.get(move)
        transfer = first = waited or Transfer(self, move, from_tier, order.to_tier, order.blocks)
        self.transfers[move] = transfer
        if waited is not None:  # it stood for a backlog and writes the last batch now
            waited.waits.remove(waited)
            waited.dependents.remove(waited)
            waited.blocks = order.blocks
        if from_tier == REMOTE:
            first = self.connects.pop(move)(transfer)
        else:
            transfer.channel = self.channel(transfer.edge)
            if self.pipelining and from_tier == COMPUTE and not order.after and waited is None:
                transfer.computed = computed
        for earlier in order.after:
            before = self.transfers.get(earlier)
            if before is not None:
                first.wait_for(before)
                if before.from_tier > before.to_tier == first.from_tier:
                    first.below = before
        first.mover.launch(first)
        if first is not transfer:
            self.launch(transfer)

    def channel(self, edge: str) -> Channel:
        """Return the channel of a transfer over an edge."""
        return self.channels[edge]

    # -- sending

    def size_of(self, blocks: int) -> Size:
        """Return the job of blocks: one piece per block and layer."""
        return Size(blocks * self.block_bytes, blocks * self.layers, self.layers)

    def launch(self, transfer: Transfer) -> None:
        """Send a transfer once its sources have arrived, or their first layer if it is fed by layers."""
        if not transfer.waits:
            self._send(transfer, None)
        elif (feed := self._feed(transfer)) is not None:
            transfer.waits.clear()
            self._send(transfer, feed)

    def _feed(self, transfer: Transfer) -> Transfer | None:
        """Return the transfer that feeds another layer by layer, once its first layer has arrived."""
        if not transfer.streams or len(transfer.waits) != 1 or not transfer.waits[0].feeds(transfer):
            return None
        before = transfer.waits[0]
        arrived = before.sent is not None and before.sent.first_layer_ns <= self.engine.now_ns
        return before if arrived else None

    def _send(self, transfer: Transfer, feed: Transfer | None) -> None:
        channel, now = transfer.channel, self.engine.now_ns
        size = self.size_of(transfer.blocks)
        if isinstance(channel, LayeredChannel):
            at_hand = self.layers
            if feed is not None and feed.sent is not None:
                at_hand = sum(arrival <= now for arrival in feed.sent.arrivals_ns)
            is_load, on_layer = transfer.from_tier > transfer.to_tier, partial(self._on_layer, transfer)
            transfer.job = channel.submit(size, at_hand, is_load, on_layer)
            transfer.sent = transfer.job.times
            return
        if feed is not None:
            feed.dependents.remove(transfer)
        before = None if feed is None else feed.sent
        if transfer.computed is not None:
            # Jobs queued meanwhile are in the channel's queue: the layers left as they were computed.
            first = max(transfer.computed.first_layer_ns, channel.last_call_ns)
            before = Transmission(first, first, now, (now - first) // max(self.layers - 1, 1))
        elif before is not None and before.completion_ns > now:
            # It is fed from now on, even if the first layer has arrived earlier.
            before = Transmission(before.start_ns, now, before.completion_ns, before.per_layer_ns)
        else:
            before = None
        sent = transfer.sent = channel.transmit(size, now, before)
        self._note(transfer)
        if sent.first_layer_ns < sent.completion_ns and self._by_layer(transfer):
            self.engine.schedule(sent.first_layer_ns, TRANSFER, self.machine, self._on_first_layer, transfer)
        self.engine.schedule(sent.completion_ns, TRANSFER, self.machine, self._on_complete, transfer)

    def computing(self, times: Transmission, into: Transfer) -> None:
        """Feed a transfer with the layers that a step computes at these times."""
        step = Transfer(self, HOP, COMPUTE, COMPUTE, 0)
        step.sent = times
        into.wait_for(step)
        at = max(times.first_layer_ns, self.engine.now_ns)
        self.engine.schedule(at, TRANSFER, self.machine, self._first_computed, step)

    def _first_computed(self, step: Transfer) -> None:
        self._on_first_layer(step)
        if not step.dependents:  # sent with all its times
            return
        times, now = step.sent, self.engine.now_ns
        assert times is not None
        for layers, computed_ns in enumerate(times.arrivals_ns[1:-1], 2):
            feed = partial(self._feed_dependents, step)
            self.engine.schedule(max(computed_ns, now), TRANSFER, self.machine, feed, layers)
        self.engine.schedule(times.completion_ns, TRANSFER, self.machine, self._on_complete, step)

    # -- arrivals

    def _by_layer(self, transfer: Transfer) -> bool:
        return transfer.streams and (transfer.to_tier < transfer.from_tier or transfer.move == HOP)

    def _note(self, transfer: Transfer) -> None:
        """Count a transfer whose times are final, and give the store its times."""
        sent, size = transfer.sent, transfer.size_bytes
        assert sent is not None
        self.edge_bytes[transfer.edge] = self.edge_bytes.get(transfer.edge, 0) + size
        if transfer.from_tier < REMOTE:
            self.read_bytes[transfer.from_tier] += size
        if transfer.move != HOP:
            self.written_bytes[transfer.to_tier] += size
            self.store.set_times(transfer.move, sent.first_layer_ns, sent.completion_ns)
        subject = (transfer.from_tier << 8 | transfer.to_tier) << 40 | transfer.blocks
        self.store.note(TRANSFER_RECORD, self.engine.now_ns, subject, sent.completion_ns)

    def _feed_dependents(self, transfer: Transfer, layers: int) -> None:
        for dependent in transfer.dependents:
            if dependent.job is not None and isinstance(dependent.channel, LayeredChannel):
                dependent.channel.feed(dependent.job, layers)

    def _on_layer(self, transfer: Transfer, layers: int) -> None:
        """React to a layer that has arrived on a channel served layer by layer."""
        if layers == self.layers:
            self._note(transfer)
            self._on_complete(transfer)
            return
        self._feed_dependents(transfer, layers)
        if layers == 1 and transfer.move != HOP and transfer.sent is not None:
            self.store.set_times(transfer.move, transfer.sent.first_layer_ns, NOT_YET)
        if layers == 1 and self._by_layer(transfer):
            self._on_first_layer(transfer)

    def _on_first_layer(self, transfer: Transfer) -> None:
        for dependent in list(transfer.dependents):
            if dependent.job is None:
                dependent.mover.launch(dependent)
        for watcher in transfer.watchers:
            watcher(transfer, False)
        self.moved()

    def _on_complete(self, transfer: Transfer) -> None:
        if transfer.move != HOP:
            comes_up = transfer.to_tier < transfer.from_tier < REMOTE  # the tier below keeps a copy
            if self.written is not None and transfer.to_tier > COMPUTE and not comes_up:
                self.written(transfer.to_tier, transfer.move, self.engine.now_ns)
            del self.transfers[transfer.move]
            self._finish(transfer)
            if transfer.move in self.on_complete:
                self.on_complete.pop(transfer.move)()
        for notify in transfer.at_completion:
            notify()
        for dependent in transfer.dependents:
            if dependent.job is not None and isinstance(dependent.channel, LayeredChannel):
                dependent.channel.feed(dependent.job, self.layers)
            else:
                dependent.waits.remove(transfer)
                dependent.mover.launch(dependent)
        for watcher in transfer.watchers:
            watcher(transfer, True)
        self.moved()

    def _finish(self, transfer: Transfer) -> None:
        self.store.finish_move(transfer.move)


def stage_up(store: BlockStore, request: int, part: Part, now_ns: int) -> list[Staged]:
    """Copy blocks up to the tier that the GPU loads from, tier by tier, each copy fed by the one below.

    The copies end below a tier without free blocks.
    """
    level, by = part.tier, part.by
    copies: list[Staged] = []
    while level > STAGING:
        blocks, ready = BlockRange(part.start, part.end), None if by == NO_MOVE else by
        move = store.stage(request, blocks, level - 1, ready, now_ns)
        if move is None:
            break
        copies.append(Staged(level, move))
        level, by = level - 1, move
    return copies


def is_staged(copies: list[Staged]) -> bool:
    """Return True if the copies reach the tier that the GPU loads from."""
    return bool(copies) and copies[-1].from_tier == STAGING + 1
