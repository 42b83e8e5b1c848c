"""Routing in the core: found blocks of every machine in one call, and rules without Python calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from kvcache_sim import _core
from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look, Promised, Router, RouterView
from kvcache_sim.serving.sequence import Arrival


class Clock(Protocol):
    """The time up to which machines have run when they are read."""

    @property
    def now_ns(self) -> int:
        """The first time that they have not reached."""
        ...


class DecodeClock:
    """The clock of a choice of decode machines, after all boundaries of this instant.

    A choice that is made when a request arrives comes before them. ``promised``: as of ``RouterView``.
    """

    def __init__(self, engine: Engine, promised: Promised | None = None) -> None:
        self._engine, self.promised = engine, promised
        self._at_arrival = False

    @property
    def now_ns(self) -> int:
        """The first time that machines have not reached."""
        return self._engine.now_ns + (not self._at_arrival)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Choose when a request arrives."""
        self._at_arrival = True
        try:
            yield
        finally:
            self._at_arrival = False


def look_at(replicas: Sequence[NativeReplica], clock: Clock) -> FleetLook:
    """Return the function that reads the machines' current state.

    Every batch first runs the iterations that began before the clock's time, so that a store has the same
    blocks as with single steps. Results do not depend on the reads.
    """
    fleet = _core.Fleet([replica.store for replica in replicas], [replica.core for replica in replicas])
    return FleetLook(fleet, replicas[0].cache.matchable_blocks, clock)  # all match by the same rules


class FleetLook:
    """Reads all machines' current state in one call."""

    def __init__(self, fleet: _core.Fleet, matchable_blocks: Callable[[int], int], clock: Clock) -> None:
        self.fleet = fleet
        self._matchable_blocks = matchable_blocks
        self._clock = clock

    def __call__(self, sequence: Arrival) -> Look:
        """Return the cached and active blocks of each machine."""
        limit = self._matchable_blocks(sequence.prompt_num_tokens)
        return Look(*self.fleet.look(sequence.request, limit, self._clock.now_ns))

    def held(self, sequence: Arrival, block_size_tokens: int) -> Look:
        """Return the cached and active blocks of each machine, of a prompt its full last block included."""
        full = sequence.prompt_num_tokens // block_size_tokens
        return Look(*self.fleet.look(sequence.request, full, self._clock.now_ns))

    def prefill_times(self, sequence: Arrival) -> list[int]:
        """Return by machine the estimated time (ns) to load and compute the prompt."""
        wanted = (sequence.request, self._matchable_blocks(sequence.prompt_num_tokens))
        return self.fleet.prefill_times(wanted, sequence.prompt_num_tokens, self._clock.now_ns)

    def longest(self, sequence: Arrival, threshold: float, known: Sequence[int] | None = None) -> int:
        """Return the machine of ``prefix.equally_long`` that is next by ``prefix.Ties``.

        ``known``: loads by machine; None: current loads. Only candidates are looked up: the contents of idle
        machines are in one index of all machines. Cost: one pass over loads, one lookup per candidate.
        """
        wanted = (sequence.request, self._matchable_blocks(sequence.prompt_num_tokens))
        return self.fleet.longest(wanted, self._clock.now_ns, known, threshold)


class CoreRule(NamedTuple):
    """A rule of the core's own."""

    name: str
    number: float
    #: The machines that it chooses among.
    fleet: _core.Fleet


def seen_by_core(view: RouterView, name: str, number: float = 0.0) -> CoreRule | None:
    """Return a rule over the machines of a view; None if the core cannot read the view's data."""
    look = view.look
    if view.scraped is not None or view.promised is not None or not isinstance(look, FleetLook):
        return None
    return CoreRule(name, number, look.fleet)


def rule_in_core(router: Router) -> CoreRule | None:
    """Return the core's rule with the same choices as a router, None if there is none.

    A router declares it by a method ``in_core`` of its own class: an inherited method does not count.
    """
    in_core = vars(type(router)).get("in_core")
    return None if in_core is None else in_core(router)
