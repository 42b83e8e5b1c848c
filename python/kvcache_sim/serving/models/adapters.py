"""Low-rank adapters: a machine has a few at a time, loads others when they are asked for."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from kvcache_sim.engine import HANDOVER, NO_MACHINE, Engine
from kvcache_sim.serving.models.holding import Doorway
from kvcache_sim.serving.models.settings import AdapterSettings
from kvcache_sim.serving.router.contract import Held
from kvcache_sim.serving.sequence import Arrival

#: A request that asks for no adapter.
NO_ADAPTER = -1


class _Slots:
    """The adapters of one machine."""

    def __init__(self, machine: int, settings: AdapterSettings, doorway: Doorway, engine: Engine) -> None:
        self._machine, self._settings = machine, settings
        self._doorway, self._engine = doorway, engine
        #: By adapter its open requests, those let in or loaded for; least recently used first.
        self._users: OrderedDict[int, int] = OrderedDict()
        #: By adapter that is on its way the requests that wait for it.
        self._coming: dict[int, list[int]] = {}
        #: Requests without a slot by adapter, with their places in line, the longest waiting first.
        self._waiting: OrderedDict[int, deque[tuple[int, int]]] = OrderedDict()
        self._asked = 0
        #: When the last load ends.
        self._loaded_ns = 0
        self.loads = self.replaced = 0

    def arrive(self, adapter: int, arrival: Arrival) -> bool:
        """Return whether an adapter is there."""
        if adapter in self._users and adapter not in self._coming:
            self._use(adapter)
            return True
        self._doorway.hold(self._machine, arrival)
        if adapter in self._coming:
            self._give_slots(None)
            self._join(adapter, arrival.request)
            return False
        self._asked += 1
        self._waiting.setdefault(adapter, deque()).append((self._asked, arrival.request))
        self._give_slots(None)
        return False

    def closed(self, adapter: int) -> None:
        """Hear that a request of an adapter is done; a slot falls free at the end of this instant."""
        self._use(adapter, -1)
        if self._waiting:
            self._engine.schedule(self._engine.now_ns, HANDOVER, NO_MACHINE, self._give_slots)

    def _use(self, adapter: int, more: int = 1) -> None:
        self._users[adapter] = self._users.get(adapter, 0) + more
        self._users.move_to_end(adapter)

    def _give_slots(self, _: object) -> None:
        """Let each that waits, in order, have the slot of its adapter, or one that is free."""
        given: list[tuple[int, int, int]] = []  # place, adapter, request: of adapters that have a slot now
        while given or self._waiting:
            adapter = next(iter(self._waiting), NO_ADAPTER)
            is_next = adapter != NO_ADAPTER and not (given and given[0][0] < self._waiting[adapter][0][0])
            if not is_next:
                _, adapter, request = heappop(given)
                self._join(adapter, request)
            elif self._has_room():
                (_, first), *others = self._waiting.pop(adapter)
                self._use(adapter)
                self._load(adapter, first)
                for place, request in others:
                    heappush(given, (place, adapter, request))
            else:
                while given:
                    _, adapter, request = heappop(given)
                    self._join(adapter, request)
                return

    def _join(self, adapter: int, request: int) -> None:
        """Let a request wait for an adapter that is on its way."""
        self._coming[adapter].append(request)
        self._use(adapter)

    def _has_room(self) -> bool:
        """Return whether there is a slot, once the least recently used adapter without requests has gone."""
        if len(self._users) < self._settings.slots:
            return True
        idle = next((adapter for adapter, users in self._users.items() if not users), None)
        if idle is None:
            return False
        del self._users[idle]
        self.replaced += 1
        return True

    def _load(self, adapter: int, request: int) -> None:
        self._coming[adapter] = [request]
        self._loaded_ns = max(self._loaded_ns, self._engine.now_ns) + self._settings.load_ns
        self.loads += 1
        self._engine.schedule(self._loaded_ns, HANDOVER, NO_MACHINE, self._loaded, adapter)

    def _loaded(self, adapter: int) -> None:
        for request in self._coming.pop(adapter):
            self._doorway.pass_on(self._machine, request)


class Adapters:
    """Gives each request's adapter a slot of its machine: one that is free, or the least recently used.

    A request that needs no new slot overtakes those that wait for one, as in vLLM's scheduler (max_loras).
    A slot is in use from when it is given to an adapter until the last of its requests is done. Loads of a
    machine follow each other. Cost: an event a load, a look at the machine's slots when a request comes to
    wait and when one that has a slot is done.
    """

    def __init__(
        self, settings: AdapterSettings, adapter_of: Sequence[int], held: Held, engine: Engine
    ) -> None:
        self._settings, self._adapter_of = settings, adapter_of
        self._doorway = Doorway(held)
        machines = range(len(held.requests))
        self._slots = [_Slots(machine, settings, self._doorway, engine) for machine in machines]
        #: Requests that use an adapter by number → their machine, until they are done.
        self._machine_of: dict[int, int] = {}

    def let_in_by(self, let_in: Callable[[int, int], None]) -> None:
        """Say who takes a machine and the number of a request that may go on."""
        self._doorway.open_to(let_in)

    def arrive(self, machine: int, arrival: Arrival) -> bool:
        """Return whether a request's adapter is there, or it asks for none."""
        adapter = self._adapter_of[arrival.request]
        if adapter == NO_ADAPTER:
            return True
        self._machine_of[arrival.request] = machine
        return self._slots[machine].arrive(adapter, arrival)

    def closed(self, request: int) -> None:
        """Hear that a request is done."""
        machine = self._machine_of.pop(request, None)
        if machine is not None:
            self._slots[machine].closed(self._adapter_of[request])

    @property
    def counts(self) -> dict[str, int]:
        """Loads, their time, and adapters that gave their slot away."""
        loads = sum(slots.loads for slots in self._slots)
        return {
            "loads": loads,
            "load_ns": loads * self._settings.load_ns,
            "replaced": sum(slots.replaced for slots in self._slots),
        }
