"""As many machines as bring a measure to its target: the rule of Kubernetes' HorizontalPodAutoscaler.

wanted = ceil(machines × mean / target), and as many as there are while the mean is within ``tolerance`` of
the target (kubernetes.io/docs, "Horizontal Pod Autoscaling", algorithm details). A machine that is ordered
and not yet there counts with 0.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from kvcache_sim.serving.membership.scaling_policy.contract import FleetState
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings


class _Proportional:
    """Keeps the mean of a measure over the machines at a target."""

    #: The target where none is given.
    usual = 1.0

    def __init__(self, settings: ScalingSettings) -> None:
        given = self.usual if settings.target is None else settings.target
        self._target = Fraction(given).limit_denominator(10**9)
        self._tolerance = Fraction(settings.tolerance).limit_denominator(10**9)

    def wanted(self, state: FleetState) -> int:
        """Return how many machines bring the measure to its target."""
        of_target = self.total(state) / self._target
        if abs(of_target - state.machines) <= self._tolerance * state.machines:
            return state.machines
        return ceil(of_target)

    def total(self, state: FleetState) -> Fraction:
        """Return the measure, summed over the machines."""
        raise AssertionError("a measure says what it sums")


class Queue(_Proportional):
    """So many requests wait at a machine; 5, as vLLM's production stack scales by KEDA."""

    usual = 5.0

    def total(self, state: FleetState) -> Fraction:
        """Return the requests that wait."""
        return Fraction(state.waiting)


class Requests(_Proportional):
    """So many requests wait or run at a machine; 32 unless told."""

    usual = 32.0

    def total(self, state: FleetState) -> Fraction:
        """Return the requests that wait or run."""
        return Fraction(state.waiting + state.running)


class KvUse(_Proportional):
    """Such a share of a GPU's blocks is held by running requests; 0.7 unless told."""

    usual = 0.7

    def total(self, state: FleetState) -> Fraction:
        """Return the shares' sum."""
        return Fraction(state.kv_use).limit_denominator(10**9) * state.serving
