"""The section ``fleet.scaling`` of a scenario, and the settings it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from kvcache_sim.policies.plugins.choice import OneOf
from kvcache_sim.scenario.quantities import MAX_COUNT, DurationNs, RateBytesPerS
from kvcache_sim.scenario.section import Checked, Field, Section
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings

ScalingName = Annotated[str, Checked(OneOf(SCALING))]
_MOST = 4096


class ScheduleSection(Section):
    """From when on how many machines are wanted."""

    at: DurationNs = Field(description="from when on")
    machines: int = Field(ge=1, le=_MOST, description="how many machines")


class WarmupSection(Section):
    """What a machine that comes copies from a peer before it serves."""

    tokens: int = Field(1_000_000, ge=1, le=MAX_COUNT, description="prompt tokens, those asked for last")
    bandwidth: RateBytesPerS = Field(10**10, description="rate of that copy: 10GB/s")


class ScalingSection(Section):
    """A policy that orders machines and lets them go; ``cluster.machines`` are there from the start."""

    policy: ScalingName = Field("queue", description="by what")
    least: int = Field(1, ge=1, le=_MOST, description="never fewer machines")
    most: int = Field(8, ge=1, le=_MOST, description="never more, those that still drain included")
    interval: DurationNs = Field(15 * 10**9, ge=10**6, description="the policy is asked so often")
    target: float | None = Field(
        None, gt=0, le=10**6, description="of a machine: waiting (5), all (32) requests, KV share (0.7)"
    )
    tolerance: float = Field(0.1, ge=0, lt=1, description="share of the target that is near enough")
    hold: DurationNs = Field(
        300 * 10**9, description="machines go when the most wanted within this time is fewer"
    )
    schedule: list[ScheduleSection] = Field(
        default_factory=list, description="with schedule: such as [{at: 8h, machines: 6}]"
    )
    warmup: WarmupSection | None = Field(None, description="what is copied from a peer first; null: nothing")


def scaling_settings(
    own: ScalingSection, machines: int, startup_ns: int, block_bytes: int, block_tokens: int
) -> ScalingSettings:
    """Return who decides how many machines serve; ``machines`` are there from the start."""
    warm_blocks, warm_block_ns = 0, 0
    if own.warmup is not None:
        warm_blocks = own.warmup.tokens // block_tokens
        warm_block_ns = -(-block_bytes * 10**9 // own.warmup.bandwidth)
    return ScalingSettings(
        policy=own.policy,
        first=machines,
        least=own.least,
        most=own.most,
        interval_ns=own.interval,
        target=own.target,
        tolerance=own.tolerance,
        hold_ns=own.hold,
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
            if getattr(own, key) != ScalingSection.model_fields[key].default:
                yield (key,), "a schedule knows no target"
