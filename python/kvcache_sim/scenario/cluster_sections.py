"""Sections of a scenario beside machines and replicas: tenants, shared pool, scaling, fleet and models."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from kvcache_sim.scenario.policy_names import ScalingName
from kvcache_sim.scenario.quantities import (
    CapacityField,
    Count,
    CountOrZero,
    DurationNs,
    IntervalNs,
    Machines,
    PositiveNs,
    RateBytesPerS,
)
from kvcache_sim.scenario.section import Section, about, changed, lowered
from kvcache_sim.serving.membership.plan import InFlight
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.serving.models.settings import ModelsSettings, ServedModel
from kvcache_sim.serving.tenants.settings import TenancySettings, TenantSettings


class TenantSection(Section):
    """What one tenant is due."""

    weight: Annotated[float, about("its share beside others that wait", gt=0, le=10**6)] = 1.0
    priority: Annotated[int, about("its class: the smallest goes first", ge=-(10**6), le=10**6)] = 0
    tokens_per_s: Annotated[Count | None, about("prompt and generated tokens a second; null: any number")] = (
        None
    )
    burst: Annotated[Count | None, about("so many at once after a rest; null: a second's")] = None
    cache_blocks: Annotated[
        CountOrZero | None, about("blocks of its prompts that a machine keeps; null: any number")
    ] = None


class TenantsSection(Section):
    """Tenants that share the fleet."""

    field: Annotated[str, about("member of the trace's rows that names a request's tenant")] = "tenant"
    of: Annotated[
        dict[str, TenantSection], about("by name, such as {gold: {weight: 3}, free: {tokens_per_s: 9000}}")
    ] = {}
    max_in_flight: Annotated[
        Count | None, about("requests in the fleet at once, others wait; null: as they come")
    ] = None
    isolate: Annotated[bool, about("no tenant reuses another's blocks: its name is in every key")] = False


def tenancy(own: TenantsSection | None) -> TenancySettings | None:
    """Return the tenants' settings, None where there is no such section."""
    if own is None:
        return None
    named = {
        name: lowered(TenantSettings, each, burst_tokens=each.burst or each.tokens_per_s or 0)
        for name, each in own.of.items()
    }
    return TenancySettings(named, own.max_in_flight)


#: Its channels: what machines read there, and what they put there.
POOL_CHANNELS = "pool-read", "pool-write"


class PoolChannelsSection(Section):
    """The pool's network card: one channel for what machines read there, one for what they put there."""

    bandwidth: Annotated[RateBytesPerS, about("of each of the two; 200Gb/s")] = 25 * 10**9
    latency: Annotated[DurationNs, about("from the last byte sent to its arrival")] = 5_000
    piece_overhead: Annotated[DurationNs, about("least time of one piece (a block's layer)")] = 0
    sharing: Annotated[Literal["fifo", "fair"], about("how jobs at the same time share it")] = "fifo"


class SharedPoolSection(Section):
    """Memory of a machine without a GPU that all machines write and read, as Mooncake's store."""

    capacity: Annotated[CapacityField, about("blocks, a size, or unbounded")]
    policy: Annotated[str | None, about("its eviction policy; null: cache.policy")] = None
    channels: PoolChannelsSection = PoolChannelsSection()


_MOST = 4096


class ScheduleSection(Section, kw_only=True):
    """From when on how many machines are wanted."""

    at: Annotated[DurationNs, about("from when on")]
    machines: Annotated[int, about("how many machines", ge=1, le=_MOST)]


class WarmupSection(Section):
    """What a machine that comes copies from a peer before it serves."""

    tokens: Annotated[Count, about("prompt tokens, those asked for last")] = 1_000_000
    bandwidth: Annotated[RateBytesPerS, about("rate of that copy: 10GB/s")] = 10**10


class ScalingSection(Section):
    """A policy that orders machines and lets them go; ``cluster.machines`` are there from the start."""

    policy: Annotated[ScalingName, about("by what")] = "queue"
    least: Annotated[int, about("never fewer machines", ge=1, le=_MOST)] = 1
    most: Annotated[int, about("never more, those that still drain included", ge=1, le=_MOST)] = 8
    interval: Annotated[IntervalNs, about("the policy is asked so often")] = 15 * 10**9
    target: Annotated[
        Annotated[float, Meta(gt=0, le=10**6)] | None,
        about("of a machine: waiting (5), all (32) requests, KV share (0.7)"),
    ] = None
    tolerance: Annotated[float, about("share of the target that is near enough", ge=0, lt=1)] = 0.1
    hold: Annotated[DurationNs, about("machines go when the most wanted within this time is fewer")] = (
        300 * 10**9
    )
    schedule: Annotated[list[ScheduleSection], about("with schedule: such as [{at: 8h, machines: 6}]")] = []
    warmup: Annotated[WarmupSection | None, about("what is copied from a peer first; null: nothing")] = None


def scaling_settings(
    own: ScalingSection, machines: int, startup_ns: int, block_bytes: int, block_tokens: int
) -> ScalingSettings:
    """Return who decides how many machines serve; ``machines`` are there from the start."""
    warm_blocks, warm_block_ns = 0, 0
    if own.warmup is not None:
        warm_blocks = own.warmup.tokens // block_tokens
        warm_block_ns = -(-block_bytes * 10**9 // own.warmup.bandwidth)
    return lowered(
        ScalingSettings,
        own,
        first=machines,
        schedule=tuple(sorted((each.at, each.machines) for each in own.schedule)),
        startup_ns=startup_ns,
        warm_blocks=warm_blocks,
        warm_block_ns=warm_block_ns,
    )


def contradictions(own: ScalingSection, machines: int) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield what of a section others rule out, and why."""
    if own.most < own.least:
        yield ("most",), "fewer than least"
    elif not own.least <= machines <= own.most:
        yield (), "cluster.machines, which are there from the start, are not from least to most"
    if own.policy == "schedule" and not own.schedule:
        yield ("policy",), "add fleet.scaling.schedule"


def idle(own: ScalingSection) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield what of a section has no effect, and why."""
    if own.schedule and own.policy != "schedule":
        yield ("schedule",), "the policy is not schedule"
    if own.policy == "schedule":
        for key in ("target", "tolerance"):
            if key in changed(own):
                yield (key,), "a schedule knows no target"


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


class ServedModelSection(Section):
    """One model of a fleet; its machines follow those of the model before it."""

    machines: Annotated[Machines, about("machines that serve it, of cluster.machines")] = 1
    model: Annotated[str | None, about("language model, for the size of its KV; null: model's")] = None
    step_time: Annotated[str | None, about("set or roofline of its machines; null: replica.step_time's")] = (
        None
    )


class ModelsSection(Section):
    """Several models in one fleet: a request goes to machines of its model."""

    field: Annotated[str, about("member of the trace's rows that names a request's model")] = "model"
    of: Annotated[
        dict[str, ServedModelSection], about("by name, such as {chat: {machines: 3}, code: {machines: 1}}")
    ] = {}


class AdaptersSection(Section):
    """Low-rank adapters that requests ask for: each has blocks of its own."""

    field: Annotated[str, about("member of the trace's rows that names a request's adapter")] = "lora"


def models_settings(own: ModelsSection | None) -> ModelsSettings | None:
    """Return the fleet's models, None where there is no such section."""
    if own is None:
        return None
    return ModelsSettings(tuple(ServedModel(name, each.machines) for name, each in own.of.items()))


def own_settings(own: ModelsSection | None, machine: int) -> dict[str, Any]:
    """Return what its model changes of a machine's settings."""
    served = model_of_machine(own, machine)
    if served is None or served.step_time is None:
        return {}
    return {"replica": {"step_time": served.step_time}}


def model_of_machine(own: ModelsSection | None, machine: int) -> ServedModelSection | None:
    """Return the model that a machine serves; None where models are not told apart."""
    if own is None:
        return None
    for each in own.of.values():
        if machine < each.machines:
            return each
        machine -= each.machines
    return None
