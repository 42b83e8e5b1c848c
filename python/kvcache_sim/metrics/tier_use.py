"""Reads and writes of each tier, and the reason if a tier had no effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, REMOTE, TIERS, WEARING
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value
from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("tiers.<tier>.present", "", "machines that have the tier"),
    Figure(
        "tiers.<tier>.written_bytes",
        "bytes",
        f"KV that transfers brought to the tier; what the {TIERS[COMPUTE]} computed is not counted",
    ),
    Figure(
        "tiers.<tier>.read_bytes",
        "bytes",
        "KV that transfers took from it, to the next tier or to another machine",
    ),
    Figure(
        "tiers.<tier>.duplicate_blocks",
        "blocks",
        "at the end: its blocks that are on a faster tier of the same machine too",
    ),
    Figure(
        "tiers.<tier>.drive_writes_per_day",
        "1/d",
        "bytes written / capacity / days that are measured; hottest: of the worst machine",
    ),
    Figure("tiers.<tier>.drive_writes_per_day_hottest", "1/d", "the same of the machine that wears most"),
    Figure(
        "tiers.<tier>.no_effect",
        "",
        "why a lower tier changed nothing in this run; null where it did or is absent",
    ),
)
_NS_PER_DAY = 86_400 * NS_PER_S


class TierUse(Value):
    """One tier of one machine from a run's begin to its end, or to a mark."""

    tier: str
    #: None: unbounded.
    capacity_bytes: int | None
    written_bytes: int
    read_bytes: int
    evicted_blocks: int
    duplicate_blocks: int
    #: True if the fetch policy can load blocks.
    loads: bool
    #: The same over the whole run, if this is a part of it.
    whole: TierUse | None = None


def later_tier_use(use: TierUse, before: TierUse, whole: TierUse) -> TierUse:
    """Return a tier's use since ``before``."""
    return replace(
        use,
        whole=whole,
        written_bytes=use.written_bytes - before.written_bytes,
        read_bytes=use.read_bytes - before.read_bytes,
        evicted_blocks=use.evicted_blocks - before.evicted_blocks,
    )


def summarize_tiers(
    uses: tuple[TierUse, ...], hit_tokens: Mapping[str, int], counted_ns: int
) -> dict[str, Any]:
    """Return by tier its figures over all machines; ``present`` counts the machines that have it.

    ``counted_ns`` is the time over which the uses were counted.
    """
    return {tier: _summary(tier, uses, hit_tokens, counted_ns) for tier in TIERS}


def _summary(
    tier: str, uses: tuple[TierUse, ...], hit_tokens: Mapping[str, int], counted_ns: int
) -> dict[str, Any]:
    of_tier = [use for use in uses if use.tier == tier]
    drives = [use for use in of_tier if use.tier in WEARING and use.capacity_bytes is not None]
    days = counted_ns / _NS_PER_DAY
    total_bytes = sum(use.capacity_bytes or 0 for use in drives)
    return {
        "present": len(of_tier),
        "written_bytes": sum(use.written_bytes for use in of_tier),
        "read_bytes": sum(use.read_bytes for use in of_tier),
        "duplicate_blocks": sum(use.duplicate_blocks for use in of_tier),
        "drive_writes_per_day": sum(use.written_bytes for use in drives) / total_bytes / days
        if total_bytes and days
        else None,
        "drive_writes_per_day_hottest": max(
            (use.written_bytes / (use.capacity_bytes or 1) / days for use in drives), default=None
        )
        if days
        else None,
        "no_effect": no_effect(tier, tuple(use.whole or use for use in uses), hit_tokens),
    }


def no_effect(tier: str, uses: tuple[TierUse, ...], hit_tokens: Mapping[str, int]) -> str | None:
    """Return the reason why a lower tier had no effect in this run, None if it had one or is absent."""
    of_tier = [use for use in uses if use.tier == tier]
    level = TIERS.index(tier)
    lower = sum(hit_tokens[name] for name in TIERS[level:])
    if (
        level == 0
        or not of_tier
        or lower
        or (hit_tokens[KV_SOURCES[REMOTE]] and any(use.read_bytes for use in of_tier))
    ):
        return None
    if not of_tier[0].loads:
        return f"{tier} served nothing: fetch.policy is never"
    above = TIERS[level - 1]
    if not any(use.evicted_blocks for use in uses if use.tier == above):
        return f"{tier} had no effect: {above} never evicted a block"
    if not any(use.written_bytes for use in of_tier):
        return f"{tier} had no effect: no block was written to it"
    is_lowest = not any(use.tier in TIERS[level + 1 :] for use in uses)
    if is_lowest and any(use.read_bytes for use in of_tier):  # prefetched: its blocks hit on the tier above
        return None
    return f"{tier} served nothing: no block was loaded from it"
