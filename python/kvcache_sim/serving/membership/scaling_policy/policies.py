"""Scaling policies: bring a measure to its target, or follow a schedule.

A measure is brought to its target by the rule of Kubernetes' HorizontalPodAutoscaler:
wanted = ceil(machines × mean / target), and the current number while the mean is within ``tolerance`` of
the target (kubernetes.io/docs, "Horizontal Pod Autoscaling", algorithm details). A machine that is still
starting counts with 0.
"""

from __future__ import annotations

from kvcache_sim.serving.membership.scaling_policy.contract import FleetState
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings

_MILLION = 1_000_000


class _Proportional:
    """Keeps the mean of a measure over the machines at a target."""

    #: The default target.
    usual = 1.0

    def __init__(self, settings: ScalingSettings) -> None:
        given = self.usual if settings.target is None else settings.target
        self._target_ppm = max(round(given * _MILLION), 1)
        self._tolerance_ppm = round(settings.tolerance * _MILLION)

    def wanted(self, state: FleetState) -> int:
        """Return the number of machines that brings the measure to its target."""
        total, there = self.total_ppm(state), state.machines * self._target_ppm
        if abs(total - there) * _MILLION <= self._tolerance_ppm * there:
            return state.machines
        return -(-total // self._target_ppm)

    def total_ppm(self, state: FleetState) -> int:
        """Return the measure in millionths, summed over the machines."""
        raise AssertionError("a measure implements total_ppm")


class Queue(_Proportional):
    """Waiting requests per machine; target 5 by default, as vLLM's production stack scales by KEDA."""

    usual = 5.0

    def total_ppm(self, state: FleetState) -> int:
        """Return the requests that wait."""
        return state.waiting * _MILLION


class Requests(_Proportional):
    """Waiting and running requests per machine; target 32 by default."""

    usual = 32.0

    def total_ppm(self, state: FleetState) -> int:
        """Return the requests that wait or run."""
        return (state.waiting + state.running) * _MILLION


class KvUse(_Proportional):
    """Share of a GPU's blocks that running requests hold; target 0.7 by default."""

    usual = 0.7

    def total_ppm(self, state: FleetState) -> int:
        """Return the shares' sum."""
        return round(state.kv_use * state.serving * _MILLION)


class Schedule:
    """A number of machines from each time of the schedule on; before the first time that of the start."""

    def __init__(self, settings: ScalingSettings) -> None:
        self._first, self._times = settings.first, settings.schedule

    def wanted(self, state: FleetState) -> int:
        """Return the schedule's number of machines for now."""
        said = [machines for at_ns, machines in self._times if at_ns <= state.now_ns]
        return said[-1] if said else self._first
