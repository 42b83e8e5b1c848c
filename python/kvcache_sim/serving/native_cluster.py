"""Replicas of the core that hand over or read each other: it keeps all machines' events in one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim import _core
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.engine import BOUNDARY, Engine, Event
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.sequence import Arrival

#: Where a request is decoded: the machine, the channels that it crosses, tokens expected to cross.
Chosen = tuple[int, list[_core.Channel], int]


class NativeCluster:
    """All machines of a cluster with pools, or one whose machines read each other's lower tiers.

    ``choose`` names where a request of a machine is decoded; ``between`` the channel of (owner, reader) over
    which machines are read, None where they are not.

    Cost: a call an event of the engine that is not the machines' own, and one a hand-over, for the choice.
    """

    def __init__(
        self,
        replicas: Sequence[NativeReplica],
        choose: Callable[[int, Arrival], Chosen],
        between: Callable[[int, int], AnyChannel] | None,
        engine: Engine,
        recorder: Recorder,
    ) -> None:
        self._replicas = replicas
        self._choose = choose
        self._engine = engine
        self._recorder = recorder
        self._core = _core.Cluster([replica.core for replica in replicas], between)
        #: What is next of all that machines do, and whether they may go on ahead of the clock.
        self._next: Event | None = None
        self._runs_ahead = False
        #: Those of which someone wants to hear whose prompt is computed.
        self._heard: list[NativeReplica] = []
        for replica in replicas:
            replica.share_time(self)

    def run_ahead(self) -> None:
        """Let the machines do at once all that comes before anything but their own work."""
        self._runs_ahead = True

    def tell_prefilled_of(self, replica: NativeReplica) -> None:
        """Let a replica tell whose prompt has been computed there, after each event."""
        self._heard.append(replica)

    def woken(self, machine: int) -> None:
        """Hear that a machine was told something."""
        self._go_on(self._core.woken(machine))

    def _go_on(self, at: tuple[int, int, int] | None) -> None:
        """Let what the core does next come at a time, with a priority, on a machine."""
        following = self._next
        if following is not None:
            if following[:3] == at:
                return
            self._engine.cancel(following)
            self._next = None
        if at is not None:
            self._next = self._engine.schedule_own(*at, self._run, at)

    def _run(self, event: tuple[int, int, int]) -> None:
        self._next = None
        engine = self._engine
        now_ns, until_ns = engine.now_ns, engine.others_ns if self._runs_ahead else engine.now_ns
        while True:
            at, question, closed, events = self._core.run(now_ns, until_ns)
            if events is not None:
                self._recorder.add_events(events, now_ns)
            if closed is not None:
                for machine, request in closed:
                    self._replicas[machine].tell_closed((request,))
            if question is not None:
                machine, (request, arrival_ns), tokens, session = question
                arrival = Arrival(request, arrival_ns, tokens[0], tokens[1], *session[:3], 0, session[3])
                at = self._core.assign(*self._choose(machine, arrival))
            if at is None or question is None or at[0] >= until_ns:
                break
        self._go_on(at)
        for replica in self._heard:
            replica.tell_prefilled()
        if event[1] == BOUNDARY:
            self._replicas[event[2]].check()
