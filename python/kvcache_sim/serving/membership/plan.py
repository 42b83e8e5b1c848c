"""Machines that join, drain or are lost, other failures, and the fate of a lost machine's requests."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.base.values import Value
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings

MembershipChange = Literal["join", "drain", "lose"]
InFlight = Literal["retry", "fail"]


class MembershipEvent(Value):
    """A machine that starts to serve, drains, or is lost with all its blocks."""

    at_ns: int
    change: MembershipChange
    machine: int


class TierLoss(Value):
    """Loss of all copies on a tier of a machine at a time; the tier itself is usable again at once."""

    at_ns: int
    machine: int
    tier: int


class Flush(Value):
    """Caches emptied at a time, as after a weight update; blocks of running requests stay."""

    at_ns: int
    #: None: every machine's.
    machine: int | None


class PoolLoss(Value):
    """Loss of all copies in a shared pool at a time; the pool itself is usable again at once."""

    at_ns: int


class MembershipPlan(Value):
    """Events in order of time; a machine that joins serves from its join on, the others from the start."""

    events: tuple[MembershipEvent, ...] = ()
    #: Requests of a lost machine are retried elsewhere, or fail.
    in_flight: InFlight = "retry"
    tier_losses: tuple[TierLoss, ...] = ()
    #: Times at which the router's index of the machines' caches is lost.
    index_losses_ns: tuple[int, ...] = ()
    flushes: tuple[Flush, ...] = ()
    pool_losses: tuple[PoolLoss, ...] = ()
    #: The policy for the number of machines; None: the events alone.
    scaling: ScalingSettings | None = None

    @property
    def changes_members(self) -> bool:
        """True if machines join, drain or are lost."""
        return bool(self.events) or self.scaling is not None

    @property
    def loses_copies(self) -> bool:
        """True if copies or a router's index are lost while the machines stay."""
        return bool(self.tier_losses or self.index_losses_ns or self.flushes or self.pool_losses)

    @property
    def nothing_happens(self) -> bool:
        """True if nothing but channels changes in the fleet."""
        return not (self.changes_members or self.loses_copies)

    def serving_at_start(self, machines: int) -> list[int]:
        """Return the machines that serve from the start, of ``machines`` in all."""
        if self.scaling is not None:
            return list(range(self.scaling.first))
        late = {event.machine for event in self.events if event.change == "join"}
        return [machine for machine in range(machines) if machine not in late]
