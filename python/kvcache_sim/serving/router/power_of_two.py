"""Power of two choices: two machines drawn at random, the less loaded of them."""

from __future__ import annotations

from kvcache_sim.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival


class PowerOfTwo:
    """Of two different machines drawn at random the less loaded one, the first of equals.

    Loads are the shares of the KV caches in use where the machines are polled (``router.view.interval``),
    else the requests sent there that are not finished, which the router counts itself. Draws: the stream
    ``router``.

    Source: ``power_of_two`` of sgl-model-gateway and of lightseekorg/smg at 73da68ca9 (power_of_two.rs),
    which compares reported use if both machines have a report; polled every 5 to 10 s there.
    """

    needs = Needs(engine_loads=True, load_alone=True)

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._machines = len(view.replicas)
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the less loaded of two."""
        n = self._machines
        if n == 1:
            return 0
        first = int(self._draw.integers(n))
        second = (first + 1 + int(self._draw.integers(n - 1))) % n
        loads = self._loads()
        return first if loads[first] <= loads[second] else second

    def _loads(self) -> list[int] | list[float]:
        scraped = self._view.scraped
        return scraped.occupancy().kv_use if scraped is not None and scraped.looks else self._view.requests()
