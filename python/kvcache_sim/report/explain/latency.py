"""Sentences on TTFT: its parts, and the causes of a long tail."""

from __future__ import annotations

import numpy as np

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, TIERS
from kvcache_sim.base.units import format_time_ms
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.saturation import saturation_sentence
from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.report.explain.tiers import idle_machines
from kvcache_sim.report.pictures.waterfall import PARTS, bands

_MOST = 0.5
_MUCH = 0.25
_SOME = 0.05
_LITTLE = 0.005
#: Stretches of time in which a queue may grow, and times as long a TTFT at which a bound is overloaded.
_STRETCHES, _FAR = 100, 5
#: Part of TTFT → its least share at p99 that is worth saying, and what the sentence says after that share.
_OF_PART = {
    "queue_ns": (_MOST, "is queueing"),
    "prefill_ns": (_MOST, "is prefill of uncached tokens"),
    "fetch_room_ns": (_SOME, "waits for the write-back of evicted blocks"),
}


def _tail(case: Case, part: str) -> float:
    """Return the share that a part has of TTFT around its 99th percentile."""
    rows = case.run.finished
    if not len(rows["request"]):
        return 0.0
    tail = bands(rows)["p99"]
    total = sum(int(rows[column][tail].sum()) for column in PARTS.values())
    return int(rows[part][tail].sum()) / total if total else 0.0


def parts(case: Case) -> str | None:
    """The parts of the mean TTFT, without those that round to 0.0 ms and are below 0.5 %."""
    if not case.ttft_ms:
        return None
    means = {part: case.mean_ms(column) for part, column in PARTS.items()}
    shares = ", ".join(
        f"{part} {format_time_ms(mean)} ({percent(mean / case.ttft_ms)})"
        for part, mean in means.items()
        if round(mean, 1) or mean / case.ttft_ms > _LITTLE
    )
    return f"Mean TTFT is {format_time_ms(case.ttft_ms)}: {shares}."


def saturated(case: Case) -> str | None:
    """Requests arrive faster than they are served, or mostly wait."""
    sentence = saturation_sentence(case.run.summary)
    return f"Saturated: {sentence}." if sentence else None


def growing_queue(case: Case) -> str | None:
    """The queue takes most of the mean TTFT: the share of the time in which it grows."""
    rows = case.run.finished
    share = case.mean_ms("queue_ns") / case.ttft_ms if case.ttft_ms else 0.0
    if share < _MOST:
        return None
    arrived, admitted = np.sort(rows["arrival_ns"]), np.sort(rows["arrival_ns"] + rows["queue_ns"])
    ends = np.linspace(arrived[0], max(arrived[-1], arrived[0] + 1), _STRETCHES + 1)
    waiting = np.searchsorted(arrived, ends, "right") - np.searchsorted(admitted, ends, "right")
    median_ms = float(np.median(rows["queue_ns"])) / 1e6
    grows = float((np.diff(waiting) > 0).mean())
    return (
        f"The queue takes {percent(share)} of the mean TTFT (median wait {format_time_ms(median_ms)}); "
        f"it grows in {percent(grows)} of the time, to {int(waiting.max()):,} requests."
    )


def near_saturation(case: Case) -> str | None:
    """At the slow bound of the model the run would be overloaded."""
    ends = (case.run.summary.get("certainty") or {}).get("ttft_mean") or {}
    slow = ends.get("model_high")
    if not slow or not case.ttft_ms or slow < _FAR * case.ttft_ms:
        return None
    return (
        f"Near saturation: at the slow bound of the model the mean TTFT is {format_time_ms(slow)}, "
        f"{slow / case.ttft_ms:,.0f} times as long."
    )


def tail_of(part: str, case: Case) -> str | None:
    """A part in ``_OF_PART`` takes much of the tail."""
    share, (least, said) = _tail(case, part), _OF_PART[part]
    return None if share < least else f"At p99, {percent(share)} of TTFT {said}"


def write_back(case: Case) -> str | None:
    """Evicted blocks are written to the tier below first."""
    said = tail_of("fetch_room_ns", case)
    if said is None:
        return None
    return f"{said}{'; write.policy=through would shorten it' if early_copies_help(case) else ''}."


def prefilling(case: Case) -> str | None:
    """Computing takes most of the tail."""
    said = tail_of("prefill_ns", case)
    return said and f"{said}."


def queueing(case: Case) -> str | None:
    """Waiting for admission takes most of the tail."""
    said, remedy = tail_of("queue_ns", case), "another router" if idle_machines(case) else "more machines"
    return None if said is None else f"{said}: {remedy} would shorten it."


def early_copies_help(case: Case) -> bool:
    """Return True if blocks are first written when they are evicted, and the tier below is larger."""
    sizes = [tier.capacity_blocks for tier in case.scenario.settings.machines[0].tiers[:2]]
    if len(sizes) < 2 or "through" in case.scenario.settings.movement.write.values():
        return False
    return sizes[0] is not None and (sizes[1] is None or sizes[1] > sizes[0])


def fetching(case: Case) -> str | None:
    """Loading KV takes a large part of the tail."""
    tiers = {tier: _tail(case, f"fetch_{tier}_ns") for tier in KV_SOURCES[COMPUTE + 1 :]}
    worst = max(tiers, key=lambda tier: tiers[tier])
    if tiers[worst] < _MUCH:
        return None
    return (
        f"At p99, {percent(tiers[worst])} of TTFT waits for KV from {worst}: a faster channel would "
        "shorten it."
    )


def batch_stalls(case: Case) -> str | None:
    """Loads of one request held up others."""
    stall, prefill = case.mean_ms("batch_stall_ns"), case.mean_ms("prefill_ns")
    if not prefill or stall < _SOME * prefill:
        return None
    return f"{percent(stall / prefill)} of prefill time is a batch waiting for another request's KV."


def handovers(case: Case) -> str | None:
    """Prompts crossed from prefill to decode machines."""
    wait, reserve_ms = case.mean_ms("handover_ns"), case.mean_ms("handover_room_ns")
    if not case.ttft_ms or wait < _SOME * case.ttft_ms:
        return None
    return (
        f"The hand-over to decode machines takes {percent(wait / case.ttft_ms)} of the mean TTFT; "
        f"{percent(reserve_ms / wait)} of it waits for free blocks there."
    )


def preemptions(case: Case) -> str | None:
    """Running requests that lost their blocks to others."""
    rows = case.run.finished
    count = int(rows["preemptions"].sum())
    if not count:
        return None
    again = int(rows["recomputed_tokens"].sum())
    return (
        f"{count:,} preemption{'s' * (count != 1)}: running requests lost their blocks and recomputed "
        f"{again:,} tokens. A replica.max_num_seqs that is low enough avoids them."
    )


def rejections(case: Case) -> str | None:
    """Requests that no machine could hold, prompts that fill the context, and full queues."""
    rows = case.run.requests
    rejected = rows["status"] == STATUSES.index("rejected")
    turned_away = int((rows["status"] == STATUSES.index("turned_away")).sum())
    if not (rejected.any() or turned_away):
        return None
    limits = [machine.replica.max_model_len for machine in case.scenario.settings.machines]
    contexts = np.array([np.iinfo(np.int64).max if tokens is None else tokens for tokens in limits], np.int64)
    beyond = rows["input_tokens"][rejected] >= contexts[rows["machine"][rejected]]
    found = []
    if count := int(beyond.sum()):
        has_history = (rows["turn"][rejected][beyond] > 0).any()
        found.append(
            f"{_rejected(count)}: the prompt has replica.max_model_len tokens or more."
            f"{' replica.on_overflow=slide drops the oldest history instead.' if has_history else ''}"
        )
    if count := int((~beyond).sum()):
        found.append(f"{_rejected(count)}: more blocks needed than a {TIERS[COMPUTE]} has.")
    if turned_away:
        met = "request" if turned_away == 1 else "requests"
        found.append(f"{turned_away:,} {met} met a full queue.")
    return " ".join(found)


def _rejected(count: int) -> str:
    return f"{count:,} {'request was' if count == 1 else 'requests were'} rejected"
