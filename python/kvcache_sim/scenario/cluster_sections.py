"""Cluster sections of a scenario: tenants, shared pool, scaling, fleet, models and adapters."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from kvcache_sim.scenario.policy_kinds import ScalingName
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
    """Share, priority and quotas of one tenant."""

    weight: Annotated[float, about("its share among waiting tenants", gt=0, le=10**6)] = 1.0
    priority: Annotated[int, about("priority class; the smallest is served first", ge=-(10**6), le=10**6)] = 0
    tokens_per_s: Annotated[
        Count | None, about("prompt and generated tokens per second; null: unlimited")
    ] = None
    burst: Annotated[Count | None, about("token bucket size; null: one second of tokens")] = None
    cache_blocks: Annotated[
        CountOrZero | None, about("most cached blocks of its prompts per machine; null: unlimited")
    ] = None


class TenantsSection(Section):
    """Tenants that share the fleet."""

    field: Annotated[str, about("member of the trace's rows that names a request's tenant")] = "tenant"
    of: Annotated[
        dict[str, TenantSection], about("by name, such as {gold: {weight: 3}, free: {tokens_per_s: 9000}}")
    ] = {}
    max_in_flight: Annotated[
        Count | None, about("most requests in the fleet, others wait; null: unlimited")
    ] = None
    order: Annotated[
        Literal["in-turn", "random"],
        about("a tenant's next request: its oldest, or any that waits"),
    ] = "in-turn"
    isolate: Annotated[bool, about("no reuse across tenants: the tenant's name is in every block key")] = (
        False
    )


def tenancy(section: TenantsSection) -> TenancySettings:
    """Return the tenants' settings."""
    named = {
        name: lowered(TenantSettings, each, burst_tokens=each.burst or each.tokens_per_s or 0)
        for name, each in section.of.items()
    }
    return TenancySettings(named, section.max_in_flight, section.order)


#: Channels of the pool: reads by machines, and writes by machines.
POOL_CHANNELS = "pool-read", "pool-write"


class PoolChannelsSection(Section):
    """The pool's network card: one channel for reads by machines, one for their writes."""

    bandwidth: Annotated[RateBytesPerS, about("of each direction, such as 200Gb/s")] = 25 * 10**9
    latency: Annotated[DurationNs, about("from the last byte sent to its arrival")] = 5_000
    piece_overhead: Annotated[DurationNs, about("least time of one piece (a block's layer)")] = 0
    sharing: Annotated[Literal["fifo", "fair"], about("concurrent jobs: in order, or at equal rates")] = (
        "fifo"
    )


class SharedPoolSection(Section):
    """Memory of a machine without a GPU that all machines read and write, as in Mooncake's store."""

    capacity: Annotated[CapacityField, about("blocks, tokens, a size, or unbounded")]
    policy: Annotated[str | None, about("its eviction policy; null: cache.policy")] = None
    channels: PoolChannelsSection = PoolChannelsSection()


_MOST = 4096


class ScheduleSection(Section, kw_only=True):
    """The number of machines wanted from a time on."""

    at: Annotated[DurationNs, about("from when on")]
    machines: Annotated[int, about("how many machines", ge=1, le=_MOST)]


class WarmupSection(Section):
    """Cache warm-up: the blocks that a joining machine copies from a peer before it serves."""

    tokens: Annotated[Count, about("most recently used prompt tokens to copy")] = 1_000_000
    bandwidth: Annotated[RateBytesPerS, about("rate of the copy, such as 10GB/s")] = 10**10


class ScalingSection(Section):
    """A policy that adds and removes machines; ``cluster.machines`` serve from the start."""

    policy: Annotated[ScalingName, about("by what")] = "queue"
    least: Annotated[int, about("never fewer machines", ge=1, le=_MOST)] = 1
    most: Annotated[int, about("most machines, including draining ones", ge=1, le=_MOST)] = 8
    interval: Annotated[IntervalNs, about("time between two decisions")] = 15 * 10**9
    target: Annotated[
        Annotated[float, Meta(gt=0, le=10**6)] | None,
        about("per machine: waiting (5) or all (32) requests, or KV usage (0.7)"),
    ] = None
    tolerance: Annotated[
        float, about("deviation from the target without a change, as a share", ge=0, lt=1)
    ] = 0.1
    hold: Annotated[DurationNs, about("scale in only below the most machines wanted in this time")] = (
        300 * 10**9
    )
    schedule: Annotated[
        list[ScheduleSection], about("with policy schedule, such as [{at: 8h, machines: 6}]")
    ] = []
    warmup: Annotated[WarmupSection | None, about("blocks copied from a peer before serving; null: none")] = (
        None
    )


def scaling_settings(
    section: ScalingSection, machines: int, startup_ns: int, block_bytes: int, block_tokens: int
) -> ScalingSettings:
    """Return the scaling settings; ``machines`` serve from the start."""
    warm_blocks, warm_block_ns = 0, 0
    if section.warmup is not None:
        warm_blocks = section.warmup.tokens // block_tokens
        warm_block_ns = -(-block_bytes * 10**9 // section.warmup.bandwidth)
    return lowered(
        ScalingSettings,
        section,
        first=machines,
        schedule=tuple(sorted((each.at, each.machines) for each in section.schedule)),
        startup_ns=startup_ns,
        warm_blocks=warm_blocks,
        warm_block_ns=warm_block_ns,
    )


def contradictions(section: ScalingSection, machines: int) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield parts of the section that other settings rule out, and the reason."""
    if section.most < section.least:
        yield ("most",), "fewer than least"
    elif not section.least <= machines <= section.most:
        yield (), "cluster.machines, which are there from the start, are not from least to most"
    if section.policy == "schedule" and not section.schedule:
        yield ("policy",), "add fleet.scaling.schedule"


def idle(section: ScalingSection) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield parts of the section without effect, and the reason."""
    if section.schedule and section.policy != "schedule":
        yield ("schedule",), "the policy is not schedule"
    if section.policy == "schedule":
        for key in ("target", "tolerance"):
            if key in changed(section):
                yield (key,), "a schedule has no target"


#: Kinds of planned events; all but the first two can also be drawn at random.
FleetChange = Literal["join", "drain", "lose", "lose-tier", "lose-index", "lose-pool", "slow", "flush"]
FaultKind = Literal["lose", "lose-tier", "lose-index", "slow"]


class _OnSection(Section):
    """The target of an event: a tier, or a channel and the share of its rate."""

    tier: Annotated[str | None, about("lose-tier: tier that loses its blocks")] = None
    channel: Annotated[str | None, about("slow: name of the channel under channels")] = None
    share: Annotated[float, about("slow: remaining share of its rate; 0: blocked", ge=0, lt=1)] = 0.0


class FleetEventSection(_OnSection, kw_only=True):
    """A machine that joins, drains or is lost, or a part that fails."""

    at: Annotated[DurationNs, about("when")]
    do: Annotated[
        FleetChange,
        about("join, drain, lose a machine, a tier, the pool or the router's index, slow or flush"),
    ]
    machine: Annotated[
        Annotated[int, Meta(ge=0, le=4095)] | None,
        about("machine index; a joining machine gets the next one"),
    ] = None
    lasts: Annotated[PositiveNs | None, about("slow: duration")] = None


class FaultSection(_OnSection, kw_only=True):
    """Random faults, independent on each machine, with exponential times between them."""

    do: Annotated[FaultKind, about("fault: a machine, a tier's blocks, the router's index, a rate")]
    mtbf: Annotated[PositiveNs, about("mean time between failures")]
    repair: Annotated[
        PositiveNs | None, about("time until a replacement joins or the channel recovers; null: never")
    ] = None


class FleetSection(Section):
    """Machines that join and leave while requests are served, and faults."""

    plan: Annotated[
        list[FleetEventSection], about("such as [{at: 60s, do: lose, machine: 2}, {at: 70s, do: join}]")
    ] = []
    faults: Annotated[
        list[FaultSection], about("such as [{do: lose, mtbf: 1h, repair: 5m}]: random, to faults_until")
    ] = []
    faults_until: Annotated[PositiveNs | None, about("end of random faults")] = None
    scaling: Annotated[
        ScalingSection | None,
        about("autoscaling, such as {policy: queue, most: 8}; null: none"),
    ] = None
    startup: Annotated[
        DurationNs, about("time from a join until the machine serves: boot and model load")
    ] = 0
    in_flight: Annotated[InFlight, about("requests of a lost machine are retried, or fail")] = "retry"


class ServedModelSection(Section):
    """One model of a fleet; its machines follow the machines of the model before it."""

    machines: Annotated[Machines, about("machines that serve it, of cluster.machines")] = 1
    model: Annotated[str | None, about("language model, for the size of its KV; null: model's")] = None
    step_time: Annotated[str | None, about("set or roofline of its machines; null: replica.step_time's")] = (
        None
    )


class ModelsSection(Section):
    """Several models in one fleet: a request is routed to machines of its model."""

    field: Annotated[str, about("member of the trace's rows that names a request's model")] = "model"
    of: Annotated[
        dict[str, ServedModelSection], about("by name, such as {chat: {machines: 3}, code: {machines: 1}}")
    ] = {}


class AdaptersSection(Section):
    """Low-rank adapters that requests use: each has its own blocks."""

    field: Annotated[str, about("member of the trace's rows that names a request's adapter")] = "lora"


def models_settings(section: ModelsSection) -> ModelsSettings:
    """Return the fleet's models."""
    return ModelsSettings(tuple(ServedModel(name, each.machines) for name, each in section.of.items()))


def model_of_machine(section: ModelsSection, machine: int) -> ServedModelSection:
    """Return the model that a machine serves."""
    for each in section.of.values():
        if machine < each.machines:
            return each
        machine -= each.machines
    return ServedModelSection()  # beyond all models: refused later
