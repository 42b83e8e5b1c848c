"""What TTFT is made of, and what made it long."""

from __future__ import annotations

from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.report.pictures.waterfall import PARTS, bands
from kvcache_sim.tiers import COMPUTE, KV_SOURCES, TIERS

_MOST = 0.5
_MUCH = 0.25
_SOME = 0.05
_LITTLE = 0.005


def _tail(case: Case, columns: tuple[str, ...]) -> float:
    """Return the share that some parts have of TTFT around its 99th percentile."""
    rows = case.run.finished
    if not len(rows["request"]):
        return 0.0
    tail = bands(rows)["p99"]
    total = sum(int(rows[column][tail].sum()) for column in PARTS.values())
    return sum(int(rows[column][tail].sum()) for column in columns) / total if total else 0.0


def parts(case: Case) -> str | None:
    """The parts of the mean TTFT; one that would be shown as 0.0 ms and is next to nothing is left out."""
    if not case.ttft_ms:
        return None
    means = {part: case.mean_ms(column) for part, column in PARTS.items()}
    shares = ", ".join(
        f"{part} {mean:,.1f} ms ({percent(mean / case.ttft_ms)})"
        for part, mean in means.items()
        if round(mean, 1) or mean / case.ttft_ms > _LITTLE
    )
    return f"The mean TTFT of {case.ttft_ms:,.1f} ms is made of: {shares}."


def queueing(case: Case) -> str | None:
    """Waiting for machines dominates the tail."""
    share = _tail(case, ("queue_ns",))
    if share < _MOST:
        return None
    return (
        f"Around its 99th percentile TTFT is mostly queueing ({percent(share)}): more machines or a "
        "larger batch "
        "would shorten it, a larger cache only by what it takes off the queue."
    )


def prefilling(case: Case) -> str | None:
    """Computing misses dominates the tail."""
    share = _tail(case, ("prefill_ns",))
    if share < _MOST:
        return None
    return (
        f"Around its 99th percentile TTFT is mostly prefill ({percent(share)}): long prompts that were "
        "not cached."
    )


def fetching(case: Case) -> str | None:
    """Loading KV takes a large part of the tail."""
    tiers = {tier: _tail(case, (f"fetch_{tier}_ns",)) for tier in KV_SOURCES[COMPUTE + 1 :]}
    worst = max(tiers, key=lambda tier: tiers[tier])
    if tiers[worst] < _MUCH:
        return None
    return (
        f"Around its 99th percentile {percent(tiers[worst])} of TTFT is waiting for KV from {worst}: its "
        "channel "
        "is slow for what is loaded."
    )


def waiting_for_capacity(case: Case) -> str | None:
    """Evicted blocks had to be written down first."""
    share = _tail(case, ("fetch_room_ns",))
    if share < _SOME:
        return None
    return (
        f"Around its 99th percentile {percent(share)} of TTFT is waiting until evicted blocks were "
        "written down: "
        "writing through, or a faster channel down, would take that off."
    )


def batch_stalls(case: Case) -> str | None:
    """Loads of one request held up others."""
    stall, prefill = case.mean_ms("batch_stall_ns"), case.mean_ms("prefill_ns")
    if not prefill or stall < _SOME * prefill:
        return None
    return f"{percent(stall / prefill)} of the prefill time is a batch waiting for another request's KV."


def handovers(case: Case) -> str | None:
    """Prompts crossed from prefill to decode machines."""
    wait, reserve_ms = case.mean_ms("handover_ns"), case.mean_ms("handover_room_ns")
    if not case.ttft_ms or wait < _SOME * case.ttft_ms:
        return None
    return (
        f"The way to the decode machines takes {percent(wait / case.ttft_ms)} of the mean TTFT, "
        f"{percent(reserve_ms / wait)} of it waiting for room there."
    )


def preemptions(case: Case) -> str | None:
    """The GPU's room ran out under running requests."""
    rows = case.run.finished
    count = int(rows["preemptions"].sum())
    if not count:
        return None
    again = int(rows["recomputed_tokens"].sum())
    return (
        f"{count:,} preemptions: running requests lost their blocks and computed {again:,} tokens again; "
        f"the {TIERS[COMPUTE]} "
        "is small for what runs at once."
    )


def rejections(case: Case) -> str | None:
    """Requests that fit nowhere."""
    count = int((case.run.requests["status"] != 0).sum())
    if not count:
        return None
    return f"{count:,} requests were rejected: they need more blocks than a {TIERS[COMPUTE]} has."
