"""Session affinity: a session stays on the machine of its first request."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.least_loaded import LeastLoaded
from kvcache_sim.serving.sequence import Arrival


class SessionAffinity:
    """The machine of the session; its first request, and one without a session, go to the least loaded."""

    needs = Needs(engine_loads=True)

    def __init__(self, view: RouterView) -> None:
        self._first = LeastLoaded(view)
        self._machine: dict[int, int] = {}

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the request's session."""
        chosen = self._machine.get(sequence.session)
        if chosen is None:
            chosen = self._first.choose(sequence)
            if sequence.session >= 0:
                self._machine[sequence.session] = chosen
        return chosen
