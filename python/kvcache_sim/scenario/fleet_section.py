"""The section ``fleet`` of a scenario."""

from typing import Annotated, Literal

from msgspec import Meta

from kvcache_sim.scenario.quantities import DurationNs, PositiveNs
from kvcache_sim.scenario.scaling_section import ScalingSection
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.serving.membership.plan import InFlight

#: What happens to a fleet by a plan; by rates all but the first two.
FleetChange = Literal["join", "drain", "lose", "lose-tier", "lose-index", "lose-pool", "slow", "flush"]
FaultKind = Literal["lose", "lose-tier", "lose-index", "slow"]


class _OnSection(Section):
    """Of what a change is one."""

    tier: Annotated[str | None, about("lose-tier: which tier's copies are gone")] = None
    channel: Annotated[str | None, about("slow: which channel, by its name under channels")] = None
    share: Annotated[float, about("slow: share of its rate that is left; 0: none passes", ge=0, lt=1)] = 0.0


class FleetEventSection(_OnSection, kw_only=True):
    """A machine that joins, drains or is lost, or a part that fails."""

    at: Annotated[DurationNs, about("when")]
    do: Annotated[
        FleetChange,
        about("join, drain, lose a machine, a tier, the pool or the router's index, slow or flush"),
    ]
    machine: Annotated[
        Annotated[int, Meta(ge=0, le=4095)] | None, about("which; a joining one gets the next number")
    ] = None
    lasts: Annotated[PositiveNs | None, about("slow: for so long")] = None


class FaultSection(_OnSection, kw_only=True):
    """Faults that come by chance, on each machine by itself: the times between two are exponential."""

    do: Annotated[FaultKind, about("what fails: a machine, a tier's copies, the router's index, a rate")]
    mtbf: Annotated[PositiveNs, about("mean time from when it works until it fails")]
    repair: Annotated[
        PositiveNs | None, about("until a machine joins in its place, or a channel is well; null: never")
    ] = None


class FleetSection(Section):
    """Machines that come and go while requests are served, and what fails."""

    plan: Annotated[
        list[FleetEventSection], about("such as [{at: 60s, do: lose, machine: 2}, {at: 70s, do: join}]")
    ] = []
    faults: Annotated[
        list[FaultSection], about("such as [{do: lose, mtbf: 1h, repair: 5m}]: by chance, to faults_until")
    ] = []
    faults_until: Annotated[PositiveNs | None, about("no fault begins later")] = None
    scaling: Annotated[
        ScalingSection | None,
        about("machines come and go by a policy, such as {policy: queue, most: 8}; null: no"),
    ] = None
    startup: Annotated[DurationNs, about("from a join until the machine serves: boot and model load")] = 0
    in_flight: Annotated[InFlight, about("requests of a lost machine start anew, or fail")] = "retry"
