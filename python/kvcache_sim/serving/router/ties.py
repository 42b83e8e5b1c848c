"""Ties: which machine gets a request where a rule finds several equal."""

from __future__ import annotations

from collections.abc import Sequence


class Ties:
    """Of equal machines, the one chosen least often so far; of those the lowest number.

    Counts every choice it returns, so a router returns what it says. Machines that are idle together, as most
    are in a large fleet, take turns instead of leaving all to the first.
    """

    def __init__(self, machines: int) -> None:
        self._chosen = [0] * machines

    def among(self, machines: Sequence[int]) -> int:
        """Return one of these machines, given in ascending order."""
        chosen = machines[0] if len(machines) == 1 else min(machines, key=self._chosen.__getitem__)
        self._chosen[chosen] += 1
        return chosen

    def least(self, costs: Sequence[float]) -> int:
        """Return the machine of the smallest cost; ``costs`` by machine."""
        smallest = min(costs)
        return self.among([machine for machine, cost in enumerate(costs) if cost == smallest])
