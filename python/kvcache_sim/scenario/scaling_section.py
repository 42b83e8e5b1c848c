"""The section ``fleet.scaling`` of a scenario, and the settings it stands for."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from kvcache_sim.scenario.policy_names import ScalingName
from kvcache_sim.scenario.quantities import Count, DurationNs, IntervalNs, RateBytesPerS
from kvcache_sim.scenario.section import Section, about, changed, lowered
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings

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
