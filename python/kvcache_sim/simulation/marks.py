"""Snapshots of a run's counters at given times: a part of a run is the difference of two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.engine import NO_MACHINE, SAMPLE, Engine
from kvcache_sim.metrics.run import Mark
from kvcache_sim.metrics.sampler import Sampler


class Marks:
    """Records the counters at ``times_ns`` without changing the run. Cost: one event per time."""

    def __init__(
        self, engine: Engine, sampler: Sampler, times_ns: Sequence[int], counted: Callable[[], Mark]
    ) -> None:
        self._engine, self._sampler, self._counted = engine, sampler, counted
        self._times_ns = times_ns
        #: Time → counters at that time; filled during the run.
        self.noted: dict[int, Mark] = {}

    def start(self) -> None:
        """Schedule the times."""
        for at_ns in self._times_ns:
            self._engine.schedule(at_ns, SAMPLE, NO_MACHINE, self._note)

    def _note(self, _: object) -> None:
        self._sampler.catch_up()
        self.noted[self._engine.now_ns] = self._counted()
