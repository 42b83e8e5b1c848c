"""Emptiest: the machine of which running requests hold the smallest share of the GPU."""

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival


class Emptiest:
    """The machine of the smallest share in use, among those within ``load_threshold`` of the fewest requests."""

    needs = Needs(engine_loads=True, keys=("load_threshold",))

    def __init__(self, view: RouterView) -> None:
        self._view = view

    def choose(self, sequence: Arrival) -> int:
        """Return that machine, the first of equals."""
        loads, shares = self._view.loads.requests(), self._view.loads.occupancy().kv_use
        most = self._view.settings.load_threshold * max(min(loads), 1)
        return min((m for m, load in enumerate(loads) if load <= most), key=lambda m: shares[m])
