"""How a replica is run and watched."""

from __future__ import annotations

from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """How a replica is run and watched; none of it changes a result.

    ``stretches``: unchanged iterations run in one native call; ``checks``: the store's invariants are checked
    at every boundary; ``records_all``: iterations, transfers, evictions and milestones are recorded.
    """

    stretches: bool
    checks: bool
    records_all: bool
