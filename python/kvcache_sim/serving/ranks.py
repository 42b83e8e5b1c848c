"""Data-parallel ranks of one engine: each has a scheduler, a queue and a KV pool, and all step together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kvcache_sim.engine import BOUNDARY, Engine, Event
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.serving.settings import MachineSettings


def dummy_step_ns(settings: MachineSettings) -> int:
    """Return what a rank without requests takes while others of its engine step: a step of one token."""
    return settings.step_time.step(StepBatch((), 1, 0, 0)) + settings.replica.step_overhead_ns


class Rank(Protocol):
    """A replica whose steps begin and end with those of others."""

    machine: int

    def end_step(self, now: int) -> None:
        """End the step that is running, if one is."""
        ...

    def compose(self, now: int) -> int | None:
        """Compose the next step and return what it would take alone, in ns; None where nothing runs."""
        ...

    def start_step(self, now: int, duration_ns: int) -> None:
        """Start the composed step, which takes as long as that of the slowest rank."""
        ...


class Ranks:
    """The ranks of an engine in lock step, as experts spread over all of them make it.

    A step takes as long as the longest of them; a rank without requests takes a dummy step of one token
    meanwhile. A request that arrives during a step waits for its end, whichever rank it was sent to. Source:
    ``DPEngineCoreProc.run_busy_loop`` of vllm/v1/engine/core.py (0.33.0), whose ranks agree every 32 steps
    that all are idle; here an engine stops with its last request.
    """

    def __init__(self, ranks: Sequence[Rank], engine: Engine, dummy_ns: int) -> None:
        self._ranks, self._engine, self._dummy_ns = ranks, engine, dummy_ns
        self._boundary: Event | None = None

    def wake(self) -> None:
        """Make sure that a step is composed: now where none is running, else when it ends."""
        if self._boundary is None:
            self._schedule(self._engine.now_ns)

    def _schedule(self, at_ns: int) -> None:
        machine = self._ranks[0].machine
        at_boundary: Callable[[object], None] = self._at_boundary
        self._boundary = self._engine.schedule(at_ns, BOUNDARY, machine, at_boundary)

    def _at_boundary(self, _: object) -> None:
        self._boundary = None
        now = self._engine.now_ns
        for rank in self._ranks:
            rank.end_step(now)
        alone = [rank.compose(now) for rank in self._ranks]
        if all(duration is None for duration in alone):
            return
        together = max(self._dummy_ns if duration is None else duration for duration in alone)
        for rank, duration in zip(self._ranks, alone, strict=True):
            if duration is not None:
                rank.start_step(now, together)
        self._schedule(now + together)
