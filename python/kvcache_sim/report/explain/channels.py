"""Whether the channels were fast enough, and what the drives had to take."""

from __future__ import annotations

from kvcache_sim.report.explain.case import Case
from kvcache_sim.tiers import WEARING


def too_slow(case: Case) -> str | None:
    """Loads over a channel could not hide under the compute of their steps."""
    shortfalls = {
        name: needed / use["bandwidth_bytes_per_s"]
        for name, use in case.run.summary.get("channels", {}).items()
        if (needed := use["needed_bytes_per_s"]["p99"]) is not None
    }
    worst = max(shortfalls, key=lambda name: shortfalls[name], default=None)
    if worst is None or shortfalls[worst] <= 1:
        return None
    has = case.run.summary["channels"][worst]["bandwidth_bytes_per_s"]
    return (
        f"{worst} has {has / 1e9:,.1f} GB/s; to hide what 99 % of the steps load over it under their own "
        f"compute, all but the first layer, it would have needed {has * shortfalls[worst] / 1e9:,.1f} GB/s."
    )


def drive_writes(case: Case) -> str | None:
    """Drives are written more than once a day."""
    tiers = case.run.summary.get("tiers", {})
    writes = {tier: tiers.get(tier, {}).get("drive_writes_per_day") or 0.0 for tier in WEARING}
    tier = max(WEARING, key=lambda tier: writes[tier])
    if writes[tier] < 1:
        return None
    hottest = tiers[tier]["drive_writes_per_day_hottest"]
    return (
        f"{tier} is written {writes[tier]:,.1f} times a day, on the hottest machine "
        f"{hottest:,.1f} times: a longer endurance, more room or fewer writes."
    )
