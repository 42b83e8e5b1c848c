"""From a request's arrival at a machine to its queue: the client's time, then the look-up's."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.machine import Machine
from kvcache_sim.engine import ARRIVAL
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.serving.settings import ReplicaSettings


class ArrivalPath:
    """Takes requests to ``enqueue``, which is called when the scheduler has one and it has been looked up."""

    def __init__(
        self,
        machine: Machine,
        settings: ReplicaSettings,
        milestones: Milestones,
        enqueue: Callable[[SequenceState], None],
    ) -> None:
        self._machine = machine.number
        self._cache = machine.cache
        self._engine = machine.mover.engine
        self._settings = settings
        self._milestones = milestones
        self._enqueue = enqueue

    def arrived(self, sequence: SequenceState) -> None:
        """Start on the way; with no time for the client it is received at once."""
        now = self._engine.now_ns
        self._milestones.arrived(sequence, now)
        if offset := self._settings.client_ns(sequence.prompt_num_tokens):
            self._engine.schedule(now + offset, ARRIVAL, self._machine, self._received, sequence)
        else:
            self._received(sequence)

    def _received(self, sequence: SequenceState) -> None:
        now, cache = self._engine.now_ns, self._cache
        self._milestones.received(sequence, now)
        if cache.lookup_ns and cache.enabled:
            self._engine.schedule(now + cache.lookup_ns, ARRIVAL, self._machine, self._looked_up, sequence)
        else:
            self._looked_up(sequence)

    def _looked_up(self, sequence: SequenceState) -> None:
        if sequence.given_up:
            self._milestones.aborted(sequence, self._engine.now_ns)
            return
        self._milestones.looked_up(sequence, self._engine.now_ns)
        self._enqueue(sequence)
