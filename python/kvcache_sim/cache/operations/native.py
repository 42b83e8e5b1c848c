"""Machines of the core that are operated manually: its mover and channels, driven by the common clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kvcache_sim import _core
from kvcache_sim.cache.fetch.plan import Part
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.operations.movement import AnyTransfer
from kvcache_sim.cache.remote import Part as RemotePart
from kvcache_sim.cache.write import WRITES
from kvcache_sim.channels.channel import NOT_YET, Transmission
from kvcache_sim.channels.choice import CHOICES
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.engine import Event
from kvcache_sim.tiers import LOAD_EDGES, PLACES, WRITE_EDGES


@dataclass(frozen=True, slots=True)
class TierRules:
    """The core's settings of one machine's tiers, as ``serving.replica.native_rules.TierRules`` has it."""

    names: tuple[str, ...]
    channels: tuple[tuple[list[AnyChannel], list[AnyChannel]], ...]
    block_bytes: int
    layer_pipelining: bool
    read_buffer_layers: int | None
    writes: tuple[str, ...]
    write_uses: int
    exclusive: tuple[bool, ...]
    fetch: str = "always"
    prefetch: None = None
    pages: None = None


@dataclass(frozen=True, slots=True)
class ReadsRules:
    """The settings of reads from all other machines."""

    staged: bool
    machines: bool = True
    pool: None = None


@dataclass(frozen=True, slots=True)
class OperationRules:
    """The core's settings of one machine that is operated manually."""

    machine: int
    places: int
    layers: int
    reads: ReadsRules | None
    tiers: TierRules

    @classmethod
    def of(cls, machine: Machine) -> OperationRules:
        """Return those of a machine."""
        movement, mover = machine.movement, machine.mover
        uppers = machine.tiers[:-1]
        lanes = tuple(
            (_lane(machine, down), _lane(machine, up))
            for down, up in zip(WRITE_EDGES[: len(uppers)], LOAD_EDGES[: len(uppers)], strict=True)
        )
        tiers = TierRules(
            names=machine.tiers,
            channels=lanes,
            block_bytes=mover.block_bytes,
            layer_pipelining=movement.layer_pipelining,
            read_buffer_layers=movement.read_buffer_layers,
            writes=tuple(movement.write.get(name, "back") for name in uppers),
            write_uses=movement.write_selective_uses,
            exclusive=tuple(name in movement.exclusive for name in uppers),
        )
        reads = None if machine.remote is None else ReadsRules(movement.remote_disk == "staged")
        return cls(machine.number, len(PLACES), mover.layers, reads, tiers)


def _lane(machine: Machine, edge: str) -> list[AnyChannel]:
    carrying = machine.mover.carrying(edge)
    return list(carrying[:1] if machine.movement.channel_choice == "assigned" else carrying)


def core_operates(machines: Sequence[Machine]) -> bool:
    """Return whether the core has all policies by which these machines move blocks."""
    return all(
        isinstance(machine.store, _core.Store)
        and all(machine.movement.write.get(name, "back") in WRITES for name in machine.tiers[:-1])
        and (machine.movement.channel_choice in CHOICES or not machine.mover.chooses_channels)
        for machine in machines
    )


class NativeMachines:
    """All machines that share a clock; every event of theirs is one of the engine's.

    Cost: a call an operation and an event.
    """

    def __init__(self, machines: Sequence[Machine], channels: Channels) -> None:
        if channels.by_layer:
            placed = channels.serve_in_core()
            for machine in machines:
                machine.mover.go_over(placed)
        self.engine = machines[0].mover.engine
        reads = any(machine.remote is not None for machine in machines)
        self.core = _core.OperatedMachines(
            [(machine.store, OperationRules.of(machine)) for machine in machines],
            channels.between if reads else None,
            channels.timeline,
        )
        self._next: Event | None = None
        #: What is called once moves of a machine have ended.
        self._waiting: list[tuple[int, set[int], Callable[[], None]]] = []

    def changed(self) -> None:
        """Let what the core does next come at its time."""
        at, following = self.core.next(), self._next
        if following is not None:
            if following[:3] == at:
                return
            self.engine.cancel(following)
        self._next = None if at is None else self.engine.schedule(*at, self._run)

    def when_ended(self, machine: int, moves: set[int], call: Callable[[], None]) -> None:
        """Call once some moves of a machine have ended."""
        self._waiting.append((machine, moves, call))

    def _run(self, _: object) -> None:
        self._next = None
        self.core.run(self.engine.now_ns)
        waiting, self._waiting = self._waiting, []
        for machine, moves, call in waiting:
            if moves.isdisjoint(self.core.moves(machine)):
                call()
            else:
                self._waiting.append((machine, moves, call))
        self.changed()


class NativeTransfer:
    """A transfer of the core; its times are looked up."""

    def __init__(self, core: _core.OperatedMachines, machine: int, move: int) -> None:
        kept = core.keep(machine, move)
        assert kept is not None, "a move that has not ended"
        self._core, self._machine, self.move = core, machine, move
        self._number, self.from_tier, self.to_tier, self.blocks = kept

    @property
    def edge(self) -> str:
        """Its edge, such as ``cpu->gpu`` or ``remote->cpu``."""
        return f"{PLACES[self.from_tier]}->{PLACES[self.to_tier]}"

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


class NativeMovement:
    """The core at work on one machine."""

    def __init__(self, machines: NativeMachines, machine: Machine) -> None:
        self._machines, self._core = machines, machines.core
        self.machine, self.layers = machine.number, machine.mover.layers
        self._mover = machine.mover
        self._transfers: dict[int, NativeTransfer] = {}
        self._by_hand: dict[str, int] = {}

    @property
    def _now_ns(self) -> int:
        return self._machines.engine.now_ns

    @property
    def channels(self) -> Mapping[str, AnyChannel]:
        """The channel of each edge, by edge name."""
        return self._mover.channels

    @property
    def transfers(self) -> Mapping[int, NativeTransfer]:
        """Transfers that have not ended, by the store's number of the move."""
        known, moves = self._transfers, self._core.moves(self.machine)
        self._transfers = {
            move: known[move] if move in known else NativeTransfer(self._core, self.machine, move)
            for move in moves
        }
        return self._transfers

    @property
    def edge_bytes(self) -> Mapping[str, int]:
        """Bytes sent so far by edge."""
        sent = dict(self._by_hand)
        for source, target, size in self._core.edge_bytes(self.machine):
            edge = f"{PLACES[source]}->{PLACES[target]}"
            sent[edge] = sent.get(edge, 0) + size
        return sent

    def issue(self) -> None:
        """Send what the store has decided."""
        self._core.issue(self.machine, self._now_ns)
        self._machines.changed()

    def load(self, request: int, lease: int, part: Part, room: Sequence[int], now_ns: int) -> int | None:
        """Load or join a part for a lease behind moves that free its room; None where it cannot be staged."""
        return self._core.load(self.machine, (request, lease), part[:4], list(room), now_ns)

    def longest(self, request: int, start: int, limit: int) -> tuple[int, Sequence[RemotePart]] | None:
        """Return the machine with the longest run from ``start`` on below its GPU, and the parts there."""
        return self._core.longest(self.machine, (request, start, limit), self._now_ns)

    def fetch(self, request: int, owner: int, part: RemotePart, now_ns: int) -> int | None:
        """Read a part of what another machine has; None where it has no room to land."""
        return self._core.fetch(self.machine, request, (owner, part), now_ns)

    def arrive(self, move: int, tiers: tuple[int, int], blocks: int, sent: Transmission) -> NativeTransfer:
        """Let a move from a tier to a tier bring blocks at the times of a transmission."""
        self._core.arrive(self.machine, (move, tiers, blocks), sent, self._now_ns)
        self._machines.changed()
        return self.transfers[move]

    def count(self, edge: str, size_bytes: int) -> None:
        """Count bytes that were sent over an edge by hand."""
        self._by_hand[edge] = self._by_hand.get(edge, 0) + size_bytes

    def when_done(self, transfers: Collection[AnyTransfer], call: Callable[[], None]) -> None:
        """Call once all of some transfers have ended, which have not yet."""
        self._machines.when_ended(self.machine, {transfer.move for transfer in transfers}, call)
