"""Pinned prompts: what a request leaves on its GPU is not evicted for a time."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_sim.cache.store import ALL_BLOCKS, NO_MOVE
from kvcache_sim.engine import MEMBERSHIP, NO_MACHINE, Event
from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.tiers import COMPUTE
from kvcache_sim.workload.trace import NO_SESSION, NOT_TOLD, Trace, view


class _Pin(NamedTuple):
    """What is held: a machine's hold, its blocks from the first one on, and the event that ends it."""

    machine: int
    hold: int
    blocks: int
    lapse: Event


class Pins:
    """Holds what requests leave on the GPU that served them, so that nothing else takes its place.

    A pin lapses after its time, or when a later request of its session is done on the same machine, whose own
    hint then counts; the blocks are ordinary ones again. A request for which the rest of the GPU has no room
    waits for that. Cost: the copies of a prompt a pin; machines are scheduled in Python.
    """

    def __init__(self, trace: Trace, kept: KeptPrompts) -> None:
        self._pin_ns, self._session = view(trace.pin_ns), view(trace.session)
        self._kept, self._engine = kept, kept.engine
        #: By machine and session, or request where there is none.
        self._held: dict[tuple[int, int], _Pin] = {}
        self._open = len(trace)
        self._pinned = self._now = self._most = 0

    @property
    def counts(self) -> dict[str, int]:
        """Return how many pins there were, and the most blocks that they held at one time, everywhere."""
        return {"retention.pins": self._pinned, "retention.most_pinned_blocks": self._most}

    def closed(self, request: int, machine: int) -> None:
        """Hear that a request is done on a machine."""
        session = self._session[request]
        place = machine, session if session != NO_SESSION else -2 - request
        before = self._held.get(place)
        if self._pin_ns[request] != NOT_TOLD:
            self._pin(request, place)
        if before is not None:
            self._engine.cancel(before.lapse)
            self._let_go(before, 1)
            if self._held[place] is before:
                del self._held[place]
        self._open -= 1
        if not self._open:
            for pin in self._held.values():
                self._engine.cancel(pin.lapse)
                self._let_go(pin, 1)
            self._held.clear()

    def _pin(self, request: int, place: tuple[int, int]) -> None:
        machine = place[0]
        end = 0
        for until, copies in self._kept.tree(machine).copies(request, ALL_BLOCKS):
            if copies[COMPUTE] != NO_MOVE:
                break
            end = until
        if not end:
            return
        hold = self._kept.tree(machine).protect(request, end, COMPUTE)
        at_ns = self._engine.now_ns + self._pin_ns[request]
        lapse = self._engine.schedule(at_ns, MEMBERSHIP, NO_MACHINE, self._lapsed, place)
        self._held[place] = _Pin(machine, hold, end, lapse)
        self._pinned += 1
        self._now += end
        self._most = max(self._most, self._now)

    def _lapsed(self, place: tuple[int, int]) -> None:
        self._let_go(self._held.pop(place), 0)

    def _let_go(self, pin: _Pin, later_ns: int) -> None:
        """End a pin; ``later_ns``: 1 where the boundaries of this instant are over."""
        self._kept.tree(pin.machine).unprotect(COMPUTE, pin.hold)
        self._now -= pin.blocks
        self._kept.replicas[pin.machine].go_on(self._engine.now_ns + later_ns)
