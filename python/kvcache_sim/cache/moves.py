"""Transfers: the store's orders put on channels, in time order, and made true when they arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from kvcache_sim.cache.digest import TRANSFER as TRANSFER_RECORD
from kvcache_sim.cache.layer_pages import LayerPages, by_layer
from kvcache_sim.cache.machine_store import MachineStore
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.cache.store import Order
from kvcache_sim.cache.transfer import HOP, Transfer
from kvcache_sim.cache.write.edges import WriteEdges
from kvcache_sim.channels.channel import NOT_YET, FifoLink, Transmission
from kvcache_sim.channels.choice.policy import ChannelChoice
from kvcache_sim.channels.edges import AnyChannel, Edges
from kvcache_sim.channels.layered_channel import LayeredChannel
from kvcache_sim.engine import TRANSFER, Engine
from kvcache_sim.tiers import COMPUTE, REMOTE, TIERS
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """What all transfers of a machine share: bytes of a block, the model's layers, their pipelining."""

    block_bytes: int
    layers: int
    layer_pipelining: bool
    #: Layers of each load to the gpu that may lie there ahead of their computation; None: all of them.
    read_buffer_layers: int | None
    #: Pages of the model's cache groups by layer; None: every block has a page of every layer.
    pages: LayerPages | None = None

    @classmethod
    def of(cls, cache: CacheSettings, movement: MovementSettings) -> TransferSettings:
        """Return those of a machine with these settings."""
        return cls(
            cache.block_bytes,
            cache.num_layers,
            movement.layer_pipelining,
            movement.read_buffer_layers,
            LayerPages(cache.groups, cache.num_layers) if cache.groups is not None else None,
        )


class Scheduler(Protocol):
    """Who computes on a machine, told when its transfers change the store."""

    def catch_up(self, now_ns: int) -> None:
        """Bring the store to what it is at a time, before it changes."""

    def moved(self) -> None:
        """Go on, with ``Mover.issue``: KV or room has come."""


class Mover:
    """Sends what a machine's store decides over its channels, and tells the store what has arrived."""

    def __init__(
        self,
        machine: int,
        store: MachineStore,
        engine: Engine,
        edges: Edges,
        writes: WriteEdges | None,
        settings: TransferSettings,
    ) -> None:
        self.machine = machine
        self.store = store.gpu
        #: The same store where it has tiers to move blocks between.
        self.tree = store.tree
        #: The same store where it moves blocks at all.
        self.moving = store.moving
        #: The same store where it moves blocks of several cache groups.
        self._groups = store.loading_groups
        self.engine = engine
        self._edges = edges
        self.block_bytes = settings.block_bytes
        self._pages = settings.pages
        self.page_bytes = 0 if settings.pages is None else settings.pages.page_bytes
        self.layers = settings.layers
        self.pipelining = settings.layer_pipelining
        self.read_buffer_layers = settings.read_buffer_layers
        self.transfers: dict[int, Transfer] = {}
        #: Bytes sent so far by edge.
        self.edge_bytes: dict[str, int] = {}
        #: Bytes that transfers have read from and written to each of this machine's tiers.
        self.read_bytes = [0] * len(TIERS)
        self.written_bytes = [0] * len(TIERS)
        #: The write policies, told of a copy about to become ready on a tier.
        self._writes = writes
        #: Called when a move is done: what an exclusive edge leaves behind.
        self.when_done: dict[int, Callable[[], None]] = {}
        #: By move that reads from another machine: what gives it its channel and its first hop.
        self._connects: dict[int, Callable[[Transfer], Transfer]] = {}
        self._scheduler: Scheduler | None = None
        #: Told (request, past the last block) of each path that the GPU's blocks have been written down on.
        self._written_down: Callable[[int, int], None] | None = None
        self._watchers: list[Callable[[Transfer], None]] = []
        self._submitted: list[Callable[[Transfer, tuple[int, int, int]], None]] = []

    @property
    def channels(self) -> Mapping[str, AnyChannel]:
        """The channel of each edge of this machine, by edge name."""
        return self._edges.channels

    @property
    def layer_pages(self) -> tuple[int, list[list[int]]] | None:
        """The bytes of a page and the layers of each cache group, where blocks are of groups."""
        return None if self._pages is None else (self._pages.page_bytes, self._pages.layers_of)

    def go_over(self, placed: Mapping[AnyChannel, AnyChannel]) -> None:
        """Take other channels in the place of those that it has."""
        self._edges.go_over(placed)

    @property
    def chooses_channels(self) -> bool:
        """Whether an edge of the machine is on several channels."""
        return self._edges.chooses

    def carrying(self, edge: str) -> tuple[AnyChannel, ...]:
        """Return all channels that an edge of this machine may take, the first one assigned to it."""
        return self._edges.carrying(edge)

    def choice(self, edge: str) -> tuple[ChannelChoice, Mapping[str, AnyChannel]] | None:
        """Return what chooses among the channels of an edge, and these by name; None where there is one."""
        return self._edges.choice(edge)

    def schedule_for(self, scheduler: Scheduler) -> None:
        """Tell who computes on this machine of every change from now on; the two need each other."""
        self._scheduler = scheduler

    def when_sent(self, watcher: Callable[[Transfer], None]) -> None:
        """Show each transfer that is sent from now on to a watcher."""
        self._watchers.append(watcher)

    def when_written_down(self, watcher: Callable[[int, int], None]) -> None:
        """Tell of each path (request, past the last block) whose last blocks have come down from the GPU."""
        self._written_down = watcher

    def when_submitted(self, watcher: Callable[[Transfer, tuple[int, int, int]], None]) -> None:
        """Show each transfer with its (bytes, pieces, layers) to a watcher as it goes on its channel."""
        self._submitted.append(watcher)

    def reads_remote(self, move: int, connect: Callable[[Transfer], Transfer]) -> None:
        """Let ``connect`` give a move from another machine its channel; it returns its first hop."""
        self._connects[move] = connect

    def catch_up(self) -> None:
        """Bring the store to what it is now, before it changes."""
        if self._scheduler is not None:
            self._scheduler.catch_up(self.engine.now_ns)

    def moved(self) -> None:
        """Send what can go now that the store has changed, and let the scheduler go on."""
        if self._scheduler is not None:
            self._scheduler.moved()
        else:
            self.issue()

    def issue(self, computed: tuple[int, int] | None = None) -> None:
        """Send the store's new orders, or queue them behind what they depend on.

        ``computed``: when a step had the first and the last layer of what is now written through.
        """
        if self.channels and self.moving is not None:  # a gpu alone orders nothing
            for order in self.moving.take_orders():
                self._accept(order, computed)

    def _accept(self, order: Order, computed: tuple[int, int] | None) -> None:
        move, from_tier, to_tier, blocks, after = order
        if from_tier > to_tier + 1:  # KV comes up tier by tier, unless from another machine
            from_tier = REMOTE
        at_layers = computed if self.pipelining and from_tier == COMPUTE and not after else None
        transfer = Transfer(self, move, from_tier, to_tier, blocks, at_layers)
        self.transfers[move] = transfer
        if self._groups is not None and self._pages is not None:
            transfer.carry(self._pages.of(self._groups.blocks_of_move(move)))
        first = transfer
        if from_tier == REMOTE:
            first = self._connects.pop(move)(transfer)
        else:
            transfer.take(self.channel_of(transfer))
        for earlier in after:
            before = self.transfers.get(earlier)
            if before is not None:
                first.wait_for(before)
                if before.from_tier > before.to_tier == first.from_tier:
                    first.follow(before)
        first.mover.launch(first)
        if first is not transfer:
            self.launch(transfer)

    def channel_of(self, transfer: Transfer) -> AnyChannel:
        """Return the channel of this machine that a transfer takes: the only one of its edge, or a choice."""
        size, now = transfer.size_bytes, self.engine.now_ns
        return self._edges.channel(transfer.edge, transfer.blocks, size, now)

    def launch(self, transfer: Transfer) -> None:
        """Send a transfer once what it waits for is there, or its first layer where that is enough."""
        if not transfer.waits:
            self._send(transfer, None)
        elif (feed := self._feed(transfer)) is not None:
            transfer.waits.clear()
            self._send(transfer, feed)

    def _launch(self, dependent: Transfer) -> None:
        """Send what waited for a transfer of this machine, maybe on another one."""
        if dependent.mover is not self:
            dependent.mover.catch_up()
        dependent.mover.launch(dependent)

    def computing(self, times: Transmission, into: Transfer) -> None:
        """Feed a transfer with what a step computes between these times, layer by layer."""
        step = Transfer(self, HOP, COMPUTE, COMPUTE, 0)
        step.leave(times)
        into.wait_for(step)
        at = max(times.first_layer_ns, self.engine.now_ns)
        self.engine.schedule(at, TRANSFER, self.machine, self._first_computed, step)

    def _first_computed(self, step: Transfer) -> None:
        self._on_first_layer(step)
        if not step.dependents:  # sent, all its times known
            return
        times, now, schedule = step.sent, self.engine.now_ns, self.engine.schedule
        assert times is not None
        for layers, computed_ns in enumerate(times.arrivals_ns[1:-1], 2):
            schedule(max(computed_ns, now), TRANSFER, self.machine, self._computed, (step, layers))
        schedule(times.completion_ns, TRANSFER, self.machine, self._on_complete, step)

    def _computed(self, layer: tuple[Transfer, int]) -> None:
        step, layers = layer
        for dependent in step.dependents:
            if dependent.job is not None and isinstance(dependent.channel, LayeredChannel):
                dependent.channel.feed(dependent.job, layers)

    def _feed(self, transfer: Transfer) -> Transfer | None:
        """Return the hop that feeds a transfer layer by layer, when it is all that the transfer waits for."""
        if not transfer.streams or len(transfer.waits) != 1 or not transfer.waits[0].feeds(transfer):
            return None
        before = transfer.waits[0]
        sent = before.sent
        return before if sent is not None and sent.first_layer_ns <= self.engine.now_ns else None

    def _send(self, transfer: Transfer, feed: Transfer | None) -> None:
        channel = transfer.channel
        assert channel is not None
        channel.demand.ask(transfer.size_bytes, self.engine.now_ns)
        size = (transfer.size_bytes, transfer.pieces, self.layers)
        for watcher in self._submitted:
            watcher(transfer, size)
        if isinstance(channel, LayeredChannel):
            self._submit(transfer, channel, size, feed)
        else:
            if feed is not None:
                feed.dependents.remove(transfer)
            self._transmit(transfer, channel, size, feed)

    # -- channels whose times are final at once

    def _transmit(
        self, transfer: Transfer, channel: FifoLink, size: tuple[int, int, int], feed: Transfer | None
    ) -> None:
        now = self.engine.now_ns
        before = None if feed is None else feed.sent
        if transfer.computed is not None:
            # No other job came meanwhile that is not in the channel's queue: the layers went as computed.
            first = max(transfer.computed[0], channel.last_call_ns)
            per_layer = (now - first) // max(self.layers - 1, 1)
            sent = channel.forward(*size, Transmission(first, first, now, per_layer))
        elif before is None or before.completion_ns <= now:
            sent = channel.transmit(*size, now)
            if transfer.pages is not None and transfer.to_tier == COMPUTE:
                sent = by_layer(sent, channel.settings.latency_ns, transfer.pages)
        else:
            # Fed now, though the hop's first layer may have come earlier.
            fed = Transmission(before.start_ns, now, before.completion_ns, before.per_layer_ns)
            sent = channel.forward(*size, fed)
        transfer.leave(sent)
        self._note(transfer, now)
        self.arrive(transfer)

    def arrive(self, transfer: Transfer) -> None:
        """Let a transfer arrive at the times of its transmission, which are final."""
        sent = transfer.sent
        assert sent is not None
        schedule = self.engine.schedule
        if sent.first_layer_ns < sent.completion_ns and self._by_layer(transfer):
            schedule(sent.first_layer_ns, TRANSFER, self.machine, self._on_first_layer, transfer)
        schedule(sent.completion_ns, TRANSFER, self.machine, self._on_complete, transfer)

    # -- channels served layer by layer

    def _submit(
        self, transfer: Transfer, channel: LayeredChannel, size: tuple[int, int, int], feed: Transfer | None
    ) -> None:
        at_hand = self.layers
        if feed is not None and feed.sent is not None:
            at_hand = sum(arrival <= self.engine.now_ns for arrival in feed.sent.arrivals_ns)
        is_load = transfer.from_tier > transfer.to_tier
        job = channel.submit(size, at_hand, is_load, partial(self._on_layer, transfer))
        transfer.leave(job.times, job)
        loads = is_load and transfer.to_tier == COMPUTE and transfer.move != HOP  # hand-overs are no loads
        if self.read_buffer_layers is not None and loads:
            # Its first layer has a buffer in any case, and no layer has left yet.
            job.limit(self.read_buffer_layers)

    def _on_layer(self, transfer: Transfer, layers: int) -> None:
        for tell in transfer.at_layer:
            tell(transfer)
        if layers == self.layers:
            self.catch_up()
            self._note(transfer, self.engine.now_ns)
            self._on_complete(transfer)
            return
        for dependent in transfer.dependents:
            if dependent.job is not None and isinstance(dependent.channel, LayeredChannel):
                dependent.channel.feed(dependent.job, layers)
        if layers == 1 and transfer.move != HOP and self.moving is not None and transfer.sent is not None:
            self.moving.set_times(transfer.move, transfer.sent.first_layer_ns, NOT_YET)
        if layers == 1 and self._by_layer(transfer):
            self._on_first_layer(transfer)

    # -- arrivals

    def _by_layer(self, transfer: Transfer) -> bool:
        return transfer.streams and (transfer.to_tier < transfer.from_tier or transfer.move == HOP)

    def _note(self, transfer: Transfer, now: int) -> None:
        sent = transfer.sent
        assert sent is not None
        size = transfer.size_bytes
        self.edge_bytes[transfer.edge] = self.edge_bytes.get(transfer.edge, 0) + size
        if transfer.from_tier < REMOTE:
            self.read_bytes[transfer.from_tier] += size
        if transfer.move != HOP:
            self.written_bytes[transfer.to_tier] += size
            assert self.moving is not None, "a store without lower tiers has no moves"
            self.moving.set_times(transfer.move, sent.first_layer_ns, sent.completion_ns)
        subject = transfer.from_tier << 8 | transfer.to_tier
        self.store.note(TRANSFER_RECORD, now, subject << 40 | transfer.blocks, sent.completion_ns)
        for watcher in self._watchers:
            watcher(transfer)

    def _on_first_layer(self, transfer: Transfer) -> None:
        self.catch_up()
        for dependent in list(transfer.dependents):
            if dependent.job is None:
                self._launch(dependent)
        for watcher in transfer.watchers:
            watcher(transfer, False)
        self.moved()

    def _on_complete(self, transfer: Transfer) -> None:
        self.catch_up()
        if transfer.move != HOP:
            if self._writes is not None and transfer.to_tier > COMPUTE and not transfer.comes_up:
                self._writes.arrived(transfer.to_tier, transfer.move, self.engine.now_ns)
            del self.transfers[transfer.move]
            assert self.moving is not None, "a store without lower tiers has no moves"
            written = self._paths_written(transfer)
            self.moving.finish_move(transfer.move)
            for path in written:
                assert self._written_down is not None
                self._written_down(*path)
            if transfer.move in self.when_done:
                self.when_done.pop(transfer.move)()
        for tell in transfer.at_completion:
            tell()
        for dependent in transfer.dependents:
            if dependent.job is not None and isinstance(dependent.channel, LayeredChannel):
                dependent.channel.feed(dependent.job, self.layers)
            else:
                dependent.waits.remove(transfer)
                self._launch(dependent)
        for watcher in transfer.watchers:
            watcher(transfer, True)
        self.moved()

    def _paths_written(self, transfer: Transfer) -> list[tuple[int, int]]:
        if self._written_down is None or self.tree is None or transfer.from_tier != COMPUTE:
            return []
        return self.tree.moved_paths(transfer.move)
