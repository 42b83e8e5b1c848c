"""Who joins, drains or is lost, and when; and what becomes of requests that a lost machine had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MembershipChange = Literal["join", "drain", "lose"]
InFlight = Literal["retry", "fail"]


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """A machine that begins to serve, is sent nothing more, or is gone with all it holds."""

    at_ns: int
    change: MembershipChange
    machine: int


@dataclass(frozen=True, slots=True)
class MembershipPlan:
    """Events in order of time; a machine that joins serves from then on, the others from the start."""

    events: tuple[MembershipEvent, ...] = ()
    #: Whether requests that were on a lost machine start anew elsewhere, or fail.
    in_flight: InFlight = "retry"

    def serving_at_start(self, machines: int) -> list[int]:
        """Return the machines that serve from the start, of so many in all."""
        late = {event.machine for event in self.events if event.change == "join"}
        return [machine for machine in range(machines) if machine not in late]
