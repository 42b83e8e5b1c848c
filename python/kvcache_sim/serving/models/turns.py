"""Models that share a machine: one is awake, the others sleep until those before them have been served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kvcache_sim.engine import HANDOVER, NO_MACHINE, Engine
from kvcache_sim.serving.models.holding import Doorway
from kvcache_sim.serving.models.settings import ModelsSettings, ServedModel
from kvcache_sim.serving.router.contract import Held
from kvcache_sim.serving.sequence import Arrival

#: Told a machine and the requests that it has served, whose blocks are to be dropped.
Empty = Callable[[int, Sequence[int]], None]


class _Host:
    """One machine that models share; each is a machine of the fleet, by its number in ``models``."""

    def __init__(
        self, first: int, models: dict[int, ServedModel], doorway: Doorway, empty: Empty, engine: Engine
    ) -> None:
        self._models, self._doorway, self._empty, self._engine = models, doorway, empty, engine
        #: Whose model is awake, and whether another one's is being woken.
        self._awake, self._changing = first, False
        #: Requests of it that are not done, and those that it served since it woke.
        self._open = 0
        self._served: list[int] = []
        #: (machine, request) in the order in which they came.
        self._waiting: deque[tuple[int, int]] = deque()
        self.changes = self.change_ns = 0

    def arrive(self, machine: int, arrival: Arrival) -> bool:
        """Return whether a machine's model is awake and nobody waits before this request."""
        if machine == self._awake and not self._waiting and not self._changing:
            self._enter(arrival.request)
            return True
        self._doorway.hold(machine, arrival)
        self._waiting.append((machine, arrival.request))
        self._look_soon()
        return False

    def closed(self) -> None:
        """Hear that a request is done."""
        self._open -= 1
        self._look_soon()

    def _enter(self, request: int) -> None:
        self._open += 1
        self._served.append(request)

    def _look_soon(self) -> None:
        """Look at the end of this instant, when machines have let go of what they held."""
        if self._waiting and not self._open and not self._changing:
            self._engine.schedule(self._engine.now_ns, HANDOVER, NO_MACHINE, self._look)

    def _look(self, _: object) -> None:
        if self._open or self._changing or not self._waiting:
            return
        machine = self._waiting[0][0]
        if machine == self._awake:
            self._let_in()
            return
        self._empty(self._awake, self._served)
        took_ns = self._models[self._awake].sleep_ns + self._models[machine].wake_ns
        self.changes += 1
        self.change_ns += took_ns
        self._served, self._awake, self._changing = [], machine, True
        self._engine.schedule(self._engine.now_ns + took_ns, HANDOVER, NO_MACHINE, self._woken)

    def _woken(self, _: object) -> None:
        self._changing = False
        self._let_in()

    def _let_in(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for machine, request in waiting:
            if machine == self._awake:
                self._enter(request)
                self._doorway.pass_on(machine, request)
            else:
                self._waiting.append((machine, request))


class Turns:
    """Wakes models when they are asked for. Nobody overtakes who waits, so none waits for ever.

    A machine of the fleet is one model on one host, of which one is awake: the first from the start. A
    request of another one waits until what is open has been served; then the awake one sleeps, which drops
    its blocks on the compute tier (vLLM's sleep mode does, at either level), the first waiting one's wakes,
    and all that wait for it are let in. Whoever comes meanwhile waits behind those that wait already.
    Cost: an event a change.
    """

    def __init__(self, settings: ModelsSettings, held: Held, empty: Empty, engine: Engine) -> None:
        self._doorway = Doorway(held)
        of_machine = settings.of_machine
        machines: dict[int, dict[int, ServedModel]] = {}
        for machine, model in enumerate(of_machine):
            machines.setdefault(settings.host_of(machine), {})[machine] = settings.models[model]
        hosts = {host: _Host(host, own, self._doorway, empty, engine) for host, own in machines.items()}
        self._hosts = [hosts[settings.host_of(machine)] for machine in range(len(of_machine))]
        self._all = list(hosts.values())
        #: Requests by number → their host, until they are done.
        self._places: dict[int, _Host] = {}

    def let_in_by(self, let_in: Callable[[int, int], None]) -> None:
        """Say who takes a machine and the number of a request that may go on."""
        self._doorway.open_to(let_in)

    def arrive(self, machine: int, arrival: Arrival) -> bool:
        """Return whether a machine's model is awake and nobody waits before this request."""
        host = self._places[arrival.request] = self._hosts[machine]
        return host.arrive(machine, arrival)

    def closed(self, request: int) -> None:
        """Hear that a request is done."""
        host = self._places.pop(request, None)
        if host is not None:
            host.closed()

    @property
    def counts(self) -> dict[str, int]:
        """How often models were changed, and how long that took."""
        return {
            "changes": sum(host.changes for host in self._all),
            "change_ns": sum(host.change_ns for host in self._all),
        }
