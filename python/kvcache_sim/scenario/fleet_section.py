"""The section ``fleet`` of a scenario."""

from typing import Literal

from kvcache_sim.scenario.quantities import DurationNs
from kvcache_sim.scenario.scaling_section import ScalingSection
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.serving.membership.plan import InFlight

#: What happens to a fleet by a plan; by rates all but the first two.
FleetChange = Literal["join", "drain", "lose", "lose-tier", "lose-index", "lose-pool", "slow", "flush"]
FaultKind = Literal["lose", "lose-tier", "lose-index", "slow"]


class _OnSection(Section):
    """Of what a change is one."""

    tier: str | None = Field(None, description="lose-tier: which tier's copies are gone")
    channel: str | None = Field(None, description="slow: which channel, by its name under channels")
    share: float = Field(0.0, ge=0, lt=1, description="slow: share of its rate that is left; 0: none passes")


class FleetEventSection(_OnSection):
    """A machine that joins, drains or is lost, or a part that fails."""

    at: DurationNs = Field(description="when")
    do: FleetChange = Field(
        description="join, drain, lose a machine, a tier, the pool or the router's index, slow or flush"
    )
    machine: int | None = Field(None, ge=0, le=4095, description="which; a joining one gets the next number")
    lasts: DurationNs | None = Field(None, ge=1, description="slow: for so long")


class FaultSection(_OnSection):
    """Faults that come by chance, on each machine by itself: the times between two are exponential."""

    do: FaultKind = Field(description="what fails: a machine, a tier's copies, the router's index, a rate")
    mtbf: DurationNs = Field(ge=1, description="mean time from when it works until it fails")
    repair: DurationNs | None = Field(
        None, ge=1, description="until a machine joins in its place, or a channel is well; null: never"
    )


class FleetSection(Section):
    """Machines that come and go while requests are served, and what fails."""

    plan: list[FleetEventSection] = Field(
        default_factory=list, description="such as [{at: 60s, do: lose, machine: 2}, {at: 70s, do: join}]"
    )
    faults: list[FaultSection] = Field(
        default_factory=list,
        description="such as [{do: lose, mtbf: 1h, repair: 5m}]: by chance, to faults_until",
    )
    faults_until: DurationNs | None = Field(None, ge=1, description="no fault begins later")
    scaling: ScalingSection | None = Field(
        None, description="machines come and go by a policy, such as {policy: queue, most: 8}; null: no"
    )
    startup: DurationNs = Field(0, description="from a join until the machine serves: boot and model load")
    in_flight: InFlight = Field("retry", description="requests of a lost machine start anew, or fail")
