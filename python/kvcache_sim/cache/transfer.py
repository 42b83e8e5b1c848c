"""One order on its way: waits for what it depends on, is sent, brings its first layer, arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kvcache_sim.channels.channel import NOT_YET, FifoLink, Transmission
from kvcache_sim.channels.layered_channel import LayeredChannel, LayeredJob
from kvcache_sim.engine import Engine
from kvcache_sim.tiers import PLACES, REMOTE

#: No move of the store: a hop that only feeds another one.
HOP = -1

_EDGES = {
    (source, target): f"{PLACES[source]}->{PLACES[target]}"
    for source in range(len(PLACES))
    for target in range(len(PLACES))
}


class Sends(Protocol):
    """Who sends a transfer: the mover of the machine that the channel belongs to."""

    engine: Engine
    block_bytes: int
    page_bytes: int
    layers: int
    pipelining: bool

    def catch_up(self) -> None:
        """Bring the store of that machine to what it is now."""

    def launch(self, transfer: Transfer) -> None:
        """Send a transfer once what it waits for is there."""


class Transfer:
    """A copy from one tier to the next over one channel.

    ``feeds`` a dependent layer by layer when it brings exactly what the dependent sends on: a disk read that
    goes on to the GPU, a remote read likewise, a remote machine's disk before the network.
    """

    __slots__ = (
        "at_completion",
        "at_layer",
        "below",
        "blocks",
        "channel",
        "computed",
        "dependents",
        "edge",
        "from_tier",
        "job",
        "move",
        "mover",
        "pages",
        "sent",
        "streams",
        "to_tier",
        "waits",
        "watchers",
    )

    def __init__(
        self,
        mover: Sends,
        move: int,
        from_tier: int,
        to_tier: int,
        blocks: int,
        computed: tuple[int, int] | None = None,
    ) -> None:
        self.mover = mover
        self.move = move
        self.from_tier = from_tier
        self.to_tier = to_tier
        self.blocks = blocks
        #: Its edge, such as ``cpu->gpu`` or ``remote->cpu``.
        self.edge = _EDGES[from_tier, to_tier]
        #: Whether it is fed, and feeds, layer by layer.
        self.streams = mover.pipelining
        #: Where it goes, once that is known.
        self.channel: FifoLink | LayeredChannel | None = None
        #: The hop that brings what this one sends on.
        self.below: Transfer | None = None
        self.waits: list[Transfer] = []
        self.dependents: list[Transfer] = []
        #: None until it is on its channel.
        self.sent: Transmission | None = None
        #: Its job there, on a channel served layer by layer.
        self.job: LayeredJob | None = None
        #: When a step computed its first and its last layer, where it writes through.
        self.computed = computed
        #: Pages of each layer, where blocks are of cache groups; None: one page of every layer a block.
        self.pages: tuple[int, ...] | None = None
        #: Called with the transfer when its first layer arrives (layer pipelining) and when it is complete.
        self.watchers: list[Callable[[Transfer, bool], None]] = []
        #: Called with it at each layer's arrival, on a channel served layer by layer.
        self.at_layer: list[Callable[[Transfer], None]] = []
        #: Called once it is complete and the store knows.
        self.at_completion: list[Callable[[], None]] = []

    # -- what becomes known of it on its way

    def take(self, channel: FifoLink | LayeredChannel) -> None:
        """Go over a channel."""
        self.channel = channel

    def follow(self, below: Transfer) -> None:
        """Send on what the hop ``below`` brings."""
        self.below = below

    def carry(self, pages: tuple[int, ...]) -> None:
        """Carry so many pages of each layer."""
        self.pages = pages

    def stream(self, streams: bool) -> None:
        """Be fed, and feed, layer by layer, or whole."""
        self.streams = streams

    def leave(self, times: Transmission, job: LayeredJob | None = None) -> None:
        """Be on the channel, with these times; ``job``: where it is served layer by layer."""
        self.sent = times
        self.job = job

    # -- what is asked

    @property
    def size_bytes(self) -> int:
        """What it copies."""
        if self.pages is None:
            return self.blocks * self.mover.block_bytes
        return sum(self.pages) * self.mover.page_bytes

    @property
    def pieces(self) -> int:
        """How many places it copies from: a page each."""
        return self.blocks * self.mover.layers if self.pages is None else sum(self.pages)

    @property
    def comes_up(self) -> bool:
        """Whether it comes from the tier below on the same machine, which keeps a copy."""
        return self.to_tier < self.from_tier < REMOTE

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """When its first layer arrives, None while that is not known."""
        return None if self.sent is None else _known(self.sent.first_layer_ns)

    @property
    def ready_at_ns(self) -> int | None:
        """When all of it has arrived, None while that is not known."""
        return None if self.sent is None else _known(self.sent.completion_ns)

    def feeds(self, after: Transfer) -> bool:
        """Return whether ``after`` sends on what this brings, layer by layer."""
        upwards = self.from_tier > self.to_tier == after.from_tier > after.to_tier
        return self.move == HOP or upwards

    def wait_for(self, before: Transfer) -> None:
        """Do not leave before ``before`` is there."""
        if before not in self.waits:
            self.waits.append(before)
            before.dependents.append(self)


def latest(times_ns: Iterable[int | None], default_ns: int) -> int | None:
    """Return the latest of some times, ``default_ns`` without any; None where one is not known yet."""
    latest_ns = default_ns
    for k, time_ns in enumerate(times_ns):
        if time_ns is None:
            return None
        latest_ns = max(latest_ns, time_ns) if k else time_ns
    return latest_ns


def _known(time_ns: int) -> int | None:
    return None if time_ns == NOT_YET else time_ns
