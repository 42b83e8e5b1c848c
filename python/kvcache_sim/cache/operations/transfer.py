"""Transfers of a machine that is operated manually, with the active blocks and space that wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvcache_sim import _core
from kvcache_sim.channels.channel import NOT_YET, Transmission
from kvcache_sim.tiers import KV_SOURCES


class NativeTransfer:
    """A copy on its way over one channel; the core has its times, which are looked up."""

    def __init__(self, core: _core.OperatedMachines, machine: int, move: int) -> None:
        kept = core.keep(machine, move)
        assert kept is not None, "a move that has not ended"
        self._core, self._machine, self.move = core, machine, move
        self._number, self.from_tier, self.to_tier, self.blocks = kept

    @property
    def edge(self) -> str:
        """Its edge, such as ``cpu->gpu`` or ``remote->cpu``."""
        return f"{KV_SOURCES[self.from_tier]}->{KV_SOURCES[self.to_tier]}"

    @property
    def sent(self) -> Transmission | None:
        """Its times on the channel; None before it is there."""
        return self._core.sent(self._machine, self._number)

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """Arrival time of its first layer, None while that is not known."""
        sent = self.sent
        return None if sent is None or sent.first_layer_ns >= NOT_YET else sent.first_layer_ns

    @property
    def ready_at_ns(self) -> int | None:
        """Arrival time of its last layer, None while that is not known."""
        sent = self.sent
        return None if sent is None or sent.completion_ns >= NOT_YET else sent.completion_ns


def latest(times_ns: Iterable[int | None], default_ns: int) -> int | None:
    """Return the latest of some times, ``default_ns`` without any; None where one is not known yet."""
    latest_ns = default_ns
    for k, time_ns in enumerate(times_ns):
        if time_ns is None:
            return None
        latest_ns = max(latest_ns, time_ns) if k else time_ns
    return latest_ns


@dataclass(slots=True)
class Active:
    """Blocks held for one request: reused ones that are ready or being loaded, and active ones to compute.

    ``reused_blocks`` by the tier they came from. ``active_blocks`` have room and no content. Its times are
    None while the end of one of the transmissions is not known.
    """

    request: int
    #: The store's number of the hold.
    lease: int
    reused_blocks: dict[str, int]
    active_blocks: int
    asked_at_ns: int
    #: Transmissions that bring reused blocks, and those that free the room of the active ones.
    loads: tuple[NativeTransfer, ...]
    written: tuple[NativeTransfer, ...]

    @property
    def reserved_at_ns(self) -> int | None:
        """When all its room is free."""
        return latest((transfer.ready_at_ns for transfer in self.written), self.asked_at_ns)

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """When the first layer of all reused blocks is there: computing may start, layer by layer."""
        return latest((transfer.first_layer_ready_at_ns for transfer in self.loads), self.asked_at_ns)

    @property
    def ready_at_ns(self) -> int | None:
        """When all reused blocks are there."""
        return latest((transfer.ready_at_ns for transfer in self.loads), self.asked_at_ns)


@dataclass(frozen=True, slots=True)
class Switched:
    """Active blocks that were switched into the cache: new ones, and duplicates whose room was freed.

    Of a duplicate the request now holds the copy that was there first. ``written``: what the write policy of
    the edge below sent at once.
    """

    cached_blocks: int
    duplicate_blocks: int
    written: NativeTransfer | None


@dataclass(frozen=True, slots=True)
class Space:
    """Room for some blocks on a tier: what was evicted for it, and when it is free.

    ``written`` are the transmissions to the tier below that must end first: those of victims that were not
    there yet, and those that were on their way already. A victim with a ready copy below costs nothing.
    """

    tier: str
    blocks: int
    #: The store's number of the room.
    move: int
    acquired_at_ns: int
    written: tuple[NativeTransfer, ...]
    #: Blocks that left each tier for it, by tier.
    evicted_blocks: dict[str, int]

    @property
    def ready_at_ns(self) -> int | None:
        """When the room is free; None while that of a write that must end is not known."""
        return latest((transfer.ready_at_ns for transfer in self.written), self.acquired_at_ns)
