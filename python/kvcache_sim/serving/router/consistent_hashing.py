"""Consistent hashing with bounded load: a key stays on its machine unless that has too much."""

from __future__ import annotations

from kvcache_sim.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.hash_ring import HashRing
from kvcache_sim.serving.sequence import Arrival


class ConsistentHashing:
    """The machine of the request's key on a ring; the next one clockwise where its load is too high.

    The key is the session; a request without one goes to a machine drawn at random (stream ``router``). A
    load, requests not finished, is too high above ``max_load_skew`` times the mean. Where all are too high,
    or with ``max_load_skew`` null, the key's own machine takes it.

    Source: ``bounded_consistent_hashing`` of sgl-model-gateway (bounded_consistent_hashing.rs, lines 66–150,
    at 1cfac30c); the idea: Mirrokni, Thorup and Zadimoghaddam, arXiv 1608.01350.
    """

    needs = Needs(keys=("max_load_skew",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ring = HashRing(len(view.replicas))
        self._skew = view.settings.max_load_skew
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the request's key, or the next with room."""
        if sequence.session < 0:
            return int(self._draw.integers(len(self._view.replicas)))
        key = str(sequence.session)
        if self._skew is not None:
            loads = self._view.requests()
            most = sum(loads) / len(loads) * self._skew
            for machine in self._ring.clockwise(key):
                if loads[machine] <= most:
                    return machine
        return self._ring.owner(key)
