"""As many machines as a schedule says."""

from __future__ import annotations

from kvcache_sim.serving.membership.scaling_policy.contract import FleetState
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings


class Schedule:
    """From each time of the schedule on its number of machines; before the first as many as at the start."""

    def __init__(self, settings: ScalingSettings) -> None:
        self._first, self._times = settings.first, settings.schedule

    def wanted(self, state: FleetState) -> int:
        """Return what the schedule says for now."""
        said = [machines for at_ns, machines in self._times if at_ns <= state.now_ns]
        return said[-1] if said else self._first
