"""Transfers of a manually operated machine, and the active blocks and space that wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvcache_sim import _core
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.channels.channel import NOT_YET, Transmission


class NativeTransfer:
    """A copy in flight over one channel; its times are read from the core."""

    def __init__(self, core: _core.OperatedMachines, machine: int, move: int) -> None:
        kept = core.keep(machine, move)
        assert kept is not None, "an unfinished move"
        self._core, self._machine, self.move = core, machine, move
        self._number, self.from_tier, self.to_tier, self.blocks = kept

    @property
    def edge(self) -> str:
        """Its edge, for example ``cpu->gpu`` or ``remote->cpu``."""
        return f"{KV_SOURCES[self.from_tier]}->{KV_SOURCES[self.to_tier]}"

    @property
    def sent(self) -> Transmission | None:
        """Its times on the channel; None before it is queued."""
        return self._core.sent(self._machine, self._number)

    @property
    def times(self) -> Transmission | None:
        """Its times: final once it is queued; before, those it will have if nothing else is queued."""
        return self.sent or _core.projected(self._core.replicas, self._machine, self.move)

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """Arrival time of its first layer (ns) by its ``times``, None while unknown."""
        times = self.times
        return None if times is None or times.first_layer_ns >= NOT_YET else times.first_layer_ns

    @property
    def ready_at_ns(self) -> int | None:
        """Arrival time of its last layer (ns) by its ``times``, None while unknown."""
        times = self.times
        return None if times is None or times.completion_ns >= NOT_YET else times.completion_ns


def latest(times_ns: Iterable[int | None], default_ns: int) -> int | None:
    """Return the latest of some times, ``default_ns`` without any; None if any is unknown."""
    latest_ns = default_ns
    for k, time_ns in enumerate(times_ns):
        if time_ns is None:
            return None
        latest_ns = max(latest_ns, time_ns) if k else time_ns
    return latest_ns


@dataclass(slots=True)
class Active:
    """Blocks held for one request: reused blocks, ready or being loaded, and active blocks to compute.

    ``reused_blocks`` by the tier they came from. ``active_blocks`` are reserved, without content. Times are
    in ns, None while the end of any transmission is unknown.
    """

    request: int
    #: The store's number of the lease.
    lease: int
    reused_blocks: dict[str, int]
    active_blocks: int
    asked_at_ns: int
    #: Transmissions that load reused blocks, and transmissions that free the active blocks.
    loads: tuple[NativeTransfer, ...]
    written: tuple[NativeTransfer, ...]

    @property
    def reserved_at_ns(self) -> int | None:
        """Time (ns) at which all its active blocks are free."""
        return latest((transfer.ready_at_ns for transfer in self.written), self.asked_at_ns)

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """Time (ns) at which the first layer of all reused blocks is ready: computing may start."""
        return latest((transfer.first_layer_ready_at_ns for transfer in self.loads), self.asked_at_ns)

    @property
    def ready_at_ns(self) -> int | None:
        """Time (ns) at which all reused blocks are ready."""
        return latest((transfer.ready_at_ns for transfer in self.loads), self.asked_at_ns)


@dataclass(frozen=True, slots=True)
class Switched:
    """Active blocks that were switched into the cache: new blocks, and duplicates that were freed.

    For a duplicate the request now holds the earlier copy. ``written``: the transfer that the write policy of
    the edge below started at once.
    """

    cached_blocks: int
    duplicate_blocks: int
    written: NativeTransfer | None


@dataclass(frozen=True, slots=True)
class Space:
    """Acquired blocks on a tier, the evictions for them, and the time at which they are free.

    ``written`` are the transmissions to the tier below that must finish first: of victims without a copy
    there, and of victims already being written. A victim with a ready copy below costs nothing.
    """

    tier: str
    blocks: int
    #: The store's number of the claim.
    move: int
    acquired_at_ns: int
    written: tuple[NativeTransfer, ...]
    #: Blocks evicted for it, by tier.
    evicted_blocks: dict[str, int]

    @property
    def ready_at_ns(self) -> int | None:
        """Time (ns) at which the blocks are free; None while the end of a write is unknown."""
        return latest((transfer.ready_at_ns for transfer in self.written), self.acquired_at_ns)

    @property
    def is_final(self) -> bool:
        """True if later operations cannot change ``ready_at_ns``: all writes are queued."""
        return all(transfer.sent for transfer in self.written)
