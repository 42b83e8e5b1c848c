"""The mover of a machine that is operated manually: the core, or the mover in Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kvcache_sim.cache.fetch.plan import Part
from kvcache_sim.cache.loader import Loader
from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.remote import Part as RemotePart
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.channels.edges import AnyChannel


class AnyTransfer(Protocol):
    """A copy on its way over one channel, and its times once they are known."""

    @property
    def move(self) -> int:
        """The store's number of it."""
        ...

    @property
    def edge(self) -> str:
        """Its edge, such as ``cpu->gpu`` or ``remote->cpu``."""
        ...

    @property
    def blocks(self) -> int:
        """Blocks that it copies."""
        ...

    @property
    def sent(self) -> Transmission | None:
        """Its times on the channel; None before it is there."""
        ...

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """Arrival time of its first layer, None while that is not known."""
        ...

    @property
    def ready_at_ns(self) -> int | None:
        """Arrival time of its last layer, None while that is not known."""
        ...


class Movement(Protocol):
    """Moves the blocks of one machine, now and by itself as time passes."""

    @property
    def machine(self) -> int:
        """The machine's number."""
        ...

    @property
    def layers(self) -> int:
        """Layers of the model."""
        ...

    @property
    def channels(self) -> Mapping[str, AnyChannel]:
        """The channel of each edge, by edge name."""
        ...

    @property
    def transfers(self) -> Mapping[int, AnyTransfer]:
        """Transfers that have not ended, by the store's number of the move."""
        ...

    @property
    def edge_bytes(self) -> Mapping[str, int]:
        """Bytes sent so far by edge."""
        ...

    def issue(self) -> None:
        """Send what the store has decided."""
        ...

    def load(self, request: int, lease: int, part: Part, room: Sequence[int], now_ns: int) -> int | None:
        """Load or join a part for a lease behind moves that free its room; None where it cannot be staged."""
        ...

    def longest(self, request: int, start: int, limit: int) -> tuple[int, Sequence[RemotePart]] | None:
        """Return the machine with the longest run from ``start`` on below its GPU, and the parts there."""
        ...

    def fetch(self, request: int, owner: int, part: RemotePart, now_ns: int) -> int | None:
        """Read a part of what another machine has; None where it has no room to land."""
        ...

    def arrive(self, move: int, tiers: tuple[int, int], blocks: int, sent: Transmission) -> AnyTransfer:
        """Let a move from a tier to a tier bring blocks at the times of a transmission."""
        ...

    def count(self, edge: str, size_bytes: int) -> None:
        """Count bytes that were sent over an edge by hand."""
        ...

    def when_done(self, transfers: Collection[AnyTransfer], call: Callable[[], None]) -> None:
        """Call once all of some transfers have ended, which have not yet."""
        ...


class PythonMovement:
    """The mover, the loader and the reads in Python at work on one machine."""

    def __init__(self, mover: Mover, loader: Loader, remote: RemoteReads | None) -> None:
        self._mover, self._loader, self._remote = mover, loader, remote
        self.machine, self.layers = mover.machine, mover.layers

    @property
    def channels(self) -> Mapping[str, AnyChannel]:
        """The channel of each edge, by edge name."""
        return self._mover.channels

    @property
    def transfers(self) -> Mapping[int, Transfer]:
        """Transfers that have not ended, by the store's number of the move."""
        return self._mover.transfers

    @property
    def edge_bytes(self) -> Mapping[str, int]:
        """Bytes sent so far by edge."""
        return self._mover.edge_bytes

    def issue(self) -> None:
        """Send what the store has decided."""
        self._mover.issue()

    def load(self, request: int, lease: int, part: Part, room: Sequence[int], now_ns: int) -> int | None:
        """Load or join a part for a lease behind moves that free its room; None where it cannot be staged."""
        loaded = self._loader.load(request, lease, part, room, now_ns)
        return None if loaded is None else loaded[0]

    def longest(self, request: int, start: int, limit: int) -> tuple[int, Sequence[RemotePart]] | None:
        """Return the machine with the longest run from ``start`` on below its GPU, and the parts there."""
        return None if self._remote is None else self._remote.longest(request, start, limit)

    def fetch(self, request: int, owner: int, part: RemotePart, now_ns: int) -> int | None:
        """Read a part of what another machine has; None where it has no room to land."""
        assert self._remote is not None
        return self._remote.fetch(request, owner, part, now_ns)

    def arrive(self, move: int, tiers: tuple[int, int], blocks: int, sent: Transmission) -> Transfer:
        """Let a move from a tier to a tier bring blocks at the times of a transmission."""
        transfer = Transfer(self._mover, move, *tiers, blocks)
        transfer.leave(sent)
        self._mover.transfers[move] = transfer
        self._mover.arrive(transfer)
        return transfer

    def count(self, edge: str, size_bytes: int) -> None:
        """Count bytes that were sent over an edge by hand."""
        self._mover.edge_bytes[edge] = self._mover.edge_bytes.get(edge, 0) + size_bytes

    def when_done(self, transfers: Collection[AnyTransfer], call: Callable[[], None]) -> None:
        """Call once all of some transfers have ended, which have not yet."""
        waits = {transfer.move for transfer in transfers}

        def ended(move: int) -> None:
            waits.discard(move)
            if not waits:
                call()

        for move in tuple(waits):
            self._mover.transfers[move].at_completion.append(lambda done=move: ended(done))  # type: ignore[misc]
