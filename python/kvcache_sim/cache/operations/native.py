"""Machines of the core that are operated manually: their transfers and channels on the common clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kvcache_sim import _core
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.base.values import Value
from kvcache_sim.cache.fetch.policy import Part
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.operations.transfer import NativeTransfer
from kvcache_sim.cache.tier_rules import ReadsRules, TierRules, WriteCall, write_call
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.engine import Event

#: A part of a run on another machine: (tier there, first block, past the last, move still writing it).
RemotePart = tuple[int, int, int, int]


class OperationRules(Value):
    """The core's settings of one machine that is operated manually."""

    machine: int
    sources: int
    layers: int
    reads: ReadsRules | None
    tiers: TierRules
    #: The write policy of each edge, from the GPU down, if it is a plug-in.
    writes: tuple[WriteCall | None, ...]

    @classmethod
    def of(cls, machine: Machine) -> OperationRules:
        """Return the rules of a machine."""
        return cls(
            machine=machine.number,
            sources=len(KV_SOURCES),
            layers=machine.cache.num_layers,
            reads=ReadsRules.of(machine),
            tiers=TierRules.of(machine),
            writes=tuple(map(write_call, machine.writes)),
        )


class NativeMachines:
    """All machines that share a clock; each of their events is an event of the engine.

    Cost: one call per operation and event.
    """

    def __init__(self, machines: Sequence[Machine], channels: Channels) -> None:
        self.engine = machines[0].engine
        reads = any(machine.reads_others for machine in machines)
        self.core = _core.OperatedMachines(
            [(machine.store, OperationRules.of(machine)) for machine in machines],
            channels.between if reads else None,
            channels.timeline,
        )
        self._next: Event | None = None
        #: Callbacks for the end of moves: (machine, moves, callback).
        self._waiting: list[tuple[int, set[int], Callable[[], None]]] = []

    def changed(self) -> None:
        """Schedule the core's next event again."""
        at, following = self.core.next(), self._next
        if following is not None:
            if following[:3] == at:
                return
            self.engine.cancel(following)
        self._next = None if at is None else self.engine.schedule(*at, self._run)

    def when_ended(self, machine: int, moves: set[int], call: Callable[[], None]) -> None:
        """Call back once all of some moves of a machine have finished."""
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


class NativeMovement:
    """The core's transfers of one machine."""

    def __init__(self, machines: NativeMachines, machine: Machine) -> None:
        self._machines, self._core = machines, machines.core
        self.machine, self.layers = machine.number, machine.cache.num_layers
        #: The channel of each edge, by edge name.
        self.channels: Mapping[str, _core.Channel] = machine.edges.channels
        self._transfers: dict[int, NativeTransfer] = {}
        self._by_hand: dict[str, int] = {}

    @property
    def _now_ns(self) -> int:
        return self._machines.engine.now_ns

    @property
    def replicas(self) -> Sequence[_core.Replica]:
        """All machines of the core."""
        return self._core.replicas

    @property
    def transfers(self) -> Mapping[int, NativeTransfer]:
        """Unfinished transfers, by the store's number of the move."""
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
            edge = f"{KV_SOURCES[source]}->{KV_SOURCES[target]}"
            sent[edge] = sent.get(edge, 0) + size
        return sent

    def issue(self) -> None:
        """Send the store's orders."""
        self._core.issue(self.machine, self._now_ns)
        self._machines.changed()

    def load(
        self, request: int, lease: int, part: Part, freeing_moves: Sequence[int], now_ns: int
    ) -> int | None:
        """Load or join a part for a lease, after ``freeing_moves``; None if staging is refused."""
        return self._core.load(self.machine, (request, lease), part[:4], list(freeing_moves), now_ns)

    def longest(self, request: int, start: int, limit: int) -> tuple[int, Sequence[RemotePart]] | None:
        """Return the machine with the longest run from ``start`` on its lower tiers, and the parts there."""
        return self._core.longest(self.machine, (request, start, limit), self._now_ns)

    def fetch(self, request: int, owner: int, part: RemotePart, now_ns: int) -> int | None:
        """Read a part from another machine; None if too few blocks are free here."""
        return self._core.fetch(self.machine, request, (owner, part), now_ns)

    def arrive(self, move: int, source: int, target: int, blocks: int, sent: Transmission) -> NativeTransfer:
        """Register a move between tiers with the times of a transmission."""
        self._core.arrive(self.machine, (move, (source, target), blocks), sent, self._now_ns)
        self._machines.changed()
        return self.transfers[move]

    def count(self, edge: str, size_bytes: int) -> None:
        """Count the bytes of a manual transmission over an edge."""
        self._by_hand[edge] = self._by_hand.get(edge, 0) + size_bytes

    def on_complete(self, transfers: Collection[NativeTransfer], call: Callable[[], None]) -> None:
        """Call back once all of some unfinished transfers have finished."""
        self._machines.when_ended(self.machine, {transfer.move for transfer in transfers}, call)
