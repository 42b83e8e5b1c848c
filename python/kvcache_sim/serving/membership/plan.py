"""Who joins, drains or is lost, and when; what else fails; what becomes of a lost machine's requests."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.values import Value

MembershipChange = Literal["join", "drain", "lose"]
InFlight = Literal["retry", "fail"]


class MembershipEvent(Value):
    """A machine that begins to serve, is sent nothing more, or is gone with all it holds."""

    at_ns: int
    change: MembershipChange
    machine: int


class TierLoss(Value):
    """A tier of a machine whose copies are gone at a time; the tier itself is there again at once."""

    at_ns: int
    machine: int
    tier: int


class Flush(Value):
    """Caches that are emptied at a time, as after a weight update; what running requests hold stays."""

    at_ns: int
    #: None: every machine's.
    machine: int | None


class PoolLoss(Value):
    """A shared pool whose copies are gone at a time; the pool itself is there again at once."""

    at_ns: int


class MembershipPlan(Value):
    """Events in order of time; a machine that joins serves from then on, the others from the start."""

    events: tuple[MembershipEvent, ...] = ()
    #: Whether requests that were on a lost machine start anew elsewhere, or fail.
    in_flight: InFlight = "retry"
    tier_losses: tuple[TierLoss, ...] = ()
    #: When the router forgets what it knew of the machines' caches.
    index_losses_ns: tuple[int, ...] = ()
    flushes: tuple[Flush, ...] = ()
    pool_losses: tuple[PoolLoss, ...] = ()
    #: Who decides how many machines serve; None: the events alone.
    scaling: ScalingSettings | None = None

    @property
    def changes_members(self) -> bool:
        """Whether machines come, go or are lost."""
        return bool(self.events) or self.scaling is not None

    @property
    def loses_copies(self) -> bool:
        """Whether copies or a router's knowledge are lost while the machines stay."""
        return bool(self.tier_losses or self.index_losses_ns or self.flushes or self.pool_losses)

    @property
    def nothing_happens(self) -> bool:
        """Whether the fleet stays as it is, but for channels."""
        return not (self.changes_members or self.loses_copies)

    def serving_at_start(self, machines: int) -> list[int]:
        """Return the machines that serve from the start, of so many in all."""
        if self.scaling is not None:
            return list(range(self.scaling.first))
        late = {event.machine for event in self.events if event.change == "join"}
        return [machine for machine in range(machines) if machine not in late]
