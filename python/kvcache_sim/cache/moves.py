"""Transfers: the store's orders put on channels, in time order, and made true when they arrive."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.channel import Channel, Transmission
from kvcache_sim.cache.settings import TIERS, CacheSettings, MovementSettings
from kvcache_sim.cache.store import TRANSFER as TRANSFER_RECORD
from kvcache_sim.cache.store import BlockStore, Order
from kvcache_sim.engine import TRANSFER, Engine

CPU, DISK = TIERS.index("cpu"), TIERS.index("disk")


class Transfer:
    """One order on its way: waits for what it depends on, is sent, brings its first layer, arrives."""

    __slots__ = ("blocks", "dependents", "from_tier", "move", "sent", "to_tier", "waits", "watchers")

    def __init__(self, move: int, from_tier: int, to_tier: int, blocks: int) -> None:
        self.move = move
        self.from_tier = from_tier
        self.to_tier = to_tier
        self.blocks = blocks
        self.waits: set[int] = set()
        self.dependents: list[Transfer] = []
        #: None until it is on its channel.
        self.sent: Transmission | None = None
        #: Called with the transfer when its first layer arrives (layer pipelining) and when it is complete.
        self.watchers: list[Callable[[Transfer, bool], None]] = []

    @property
    def edge(self) -> str:
        """Its edge, such as ``cpu->gpu``."""
        return f"{TIERS[self.from_tier]}->{TIERS[self.to_tier]}"


class Mover:
    """Sends a machine's orders over its channels.

    ``on_change(now)`` is called before the store changes, so that the replica catches up first;
    ``record(transfer)`` sees each transfer as it is sent.
    """

    def __init__(
        self,
        machine: int,
        store: BlockStore,
        engine: Engine,
        channels: dict[str, Channel],
        settings: tuple[CacheSettings, MovementSettings],
    ) -> None:
        self.machine = machine
        self.store = store
        self.engine = engine
        #: Channel of each edge of this machine, by edge name.
        self.channels = channels
        cache, movement = settings
        self.block_bytes = cache.block_size_tokens * cache.kv_bytes_per_token
        self.layers = cache.num_layers
        self.pipelining = movement.layer_pipelining
        self.transfers: dict[int, Transfer] = {}
        self.on_change: Callable[[int], None] = lambda now: None
        self.after_change: Callable[[], None] = lambda: None
        self.record: Callable[[Transfer], None] | None = None

    def issue(self) -> None:
        """Send the store's new orders, or queue them behind what they depend on."""
        for order in self.store.take_orders():
            self._accept(order)

    def _accept(self, order: Order) -> None:
        move, from_tier, to_tier, blocks, after = order
        transfer = Transfer(move, from_tier, to_tier, blocks)
        self.transfers[move] = transfer
        for earlier in after:
            before = self.transfers.get(earlier)
            if before is not None:
                transfer.waits.add(earlier)
                before.dependents.append(transfer)
        if not transfer.waits:
            self._send(transfer, None)
        elif self._feed(transfer) is not None:
            self._first_layer_came(transfer)

    def _feed(self, transfer: Transfer) -> Transfer | None:
        """Return the hop that feeds a transfer layer by layer, when it is all that the transfer waits for."""
        if not self.pipelining or len(transfer.waits) != 1:
            return None
        before = self.transfers[next(iter(transfer.waits))]
        staged = (before.from_tier, before.to_tier, transfer.from_tier) == (DISK, CPU, CPU)
        sent = before.sent
        return before if staged and sent is not None and sent.first_layer_ns <= self.engine.now_ns else None

    def _first_layer_came(self, transfer: Transfer) -> None:
        feed = self._feed(transfer)
        assert feed is not None
        transfer.waits.clear()
        feed.dependents.remove(transfer)
        self._send(transfer, feed.sent)

    def _send(self, transfer: Transfer, feed: Transmission | None) -> None:
        now = self.engine.now_ns
        channel = self.channels[transfer.edge]
        size, pieces, layers = transfer.blocks * self.block_bytes, transfer.blocks * self.layers, self.layers
        if feed is None or feed.completion_ns <= now:
            sent = channel.transmit(size, pieces, layers, now)
        else:
            # Fed now, though the hop's first layer may have come earlier.
            fed = Transmission(feed.start_ns, now, feed.completion_ns, feed.per_layer_ns)
            sent = channel.forward(size, pieces, layers, fed)
        transfer.sent = sent
        subject = transfer.from_tier << 8 | transfer.to_tier
        self.store.note(TRANSFER_RECORD, now, subject << 40 | transfer.blocks, sent.completion_ns)
        if self.record is not None:
            self.record(transfer)
        schedule = self.engine.schedule
        if (
            self.pipelining
            and transfer.to_tier < transfer.from_tier
            and sent.first_layer_ns < sent.completion_ns
        ):
            schedule(sent.first_layer_ns, TRANSFER, self.machine, self._on_first_layer, transfer)
        schedule(sent.completion_ns, TRANSFER, self.machine, self._on_complete, transfer)

    def _on_first_layer(self, transfer: Transfer) -> None:
        self.on_change(self.engine.now_ns)
        for dependent in list(transfer.dependents):
            if self._feed(dependent) is not None:
                self._first_layer_came(dependent)
        for watcher in transfer.watchers:
            watcher(transfer, False)
        self.after_change()

    def _on_complete(self, transfer: Transfer) -> None:
        self.on_change(self.engine.now_ns)
        del self.transfers[transfer.move]
        self.store.finish_move(transfer.move)
        for dependent in transfer.dependents:
            dependent.waits.discard(transfer.move)
            if not dependent.waits:
                self._send(dependent, None)
            elif self._feed(dependent) is not None:
                self._first_layer_came(dependent)
        for watcher in transfer.watchers:
            watcher(transfer, True)
        self.after_change()
