"""Sentences on the tiers, channels and policies that had an effect, and on those that had none."""

from __future__ import annotations

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, TIERS, WEARING
from kvcache_sim.base.units import format_bytes, format_time_ms, significant
from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.report.explain.hit_rate import in_chunks_share, lacks_ids, missed_share


def too_slow(case: Case) -> str | None:
    """The channel whose loads take longer than the compute of their steps."""
    worst = slowest_channel(case)
    if worst is None:
        return None
    use = case.run.summary["channels"][worst]
    needed, has = (
        significant(rate / 1e9) for rate in (use["needed_bytes_per_s"]["p99"], use["bandwidth_bytes_per_s"])
    )
    return (
        f"{worst}: to hide loading behind compute in 99 % of this run's steps, this link would "
        f"need {needed} GB/s; it has {has}. A faster link would shorten the wait."
    )


def slowest_channel(case: Case) -> str | None:
    """Return the channel that lacks the most bandwidth to hide its loads; None: none does."""
    shortfalls = {
        name: needed / use["bandwidth_bytes_per_s"]
        for name, use in case.run.summary.get("channels", {}).items()
        if (needed := use["needed_bytes_per_s"]["p99"]) is not None
    }
    worst = max(shortfalls, key=lambda name: shortfalls[name], default=None)
    return worst if worst is not None and shortfalls[worst] > 1 else None


def drive_writes(case: Case) -> str | None:
    """Drive writes per day, from one on."""
    tiers = case.run.summary.get("tiers", {})
    writes = {tier: tiers.get(tier, {}).get("drive_writes_per_day") or 0.0 for tier in WEARING}
    tier = max(WEARING, key=lambda tier: writes[tier])
    if writes[tier] < 1:
        return None
    mean, hottest = significant(writes[tier]), significant(tiers[tier]["drive_writes_per_day_hottest"])
    most = f" ({hottest} on the hottest machine)" if hottest != mean else ""
    return (
        f"{tier}: {mean} drive writes per day{most}: use a higher-endurance or larger drive, or write less."
    )


def unused(tier: str, case: Case) -> str | None:
    """Return the reason for which a tier served no tokens."""
    reason = case.run.summary.get("tiers", {}).get(tier, {}).get("no_effect")
    if reason is None:
        return None
    above = TIERS[TIERS.index(tier) - 1]
    evicted = case.evictions(above)
    if not evicted:
        blocks = case.dropped_blocks
        lost = f" {_dropped(blocks)} before reaching it." if blocks else ""
        return f"{reason}.{lost}"
    sentence = f"{reason} ({_blocks(evicted)} evicted from {above})."
    missed = missed_share(case, "evicted")
    if missed and in_chunks_share(case) == missed:
        chunk = case.scenario.settings.cache.lower_chunk_tokens
        sentence += f" Its chunks of {chunk:,} tokens are larger than what requests share: no size helps."
    if cost_ms := _write_back_ms(tier, case):
        sentence += f" Waiting for writes to it costs {format_time_ms(cost_ms)} of the mean TTFT."
    return sentence


def none_returns(case: Case) -> str | None:
    """No block that the GPU evicted was requested again."""
    missed = {} if case.reuse is None else case.reuse.missed
    lost = sum(int(missed[cause].sum()) for cause in ("evicted", "not_loaded", "not_admitted") if missed)
    lower = sum(case.hit_tokens(tier) for tier in KV_SOURCES[COMPUTE + 1 :])
    if not missed or lost or lower or not case.evictions(TIERS[COMPUTE]) or lacks_ids(case):
        return None
    return "No evicted block was requested again: no tier of any size would have served one."


def dropped(case: Case) -> str | None:
    """Blocks left the cache unwritten."""
    blocks = case.dropped_blocks
    if not blocks:
        return None
    waits = case.scenario.settings.cache.overflow == "wait"
    if needed := blocks_without_drops(case):
        gpu, below = case.tiers[:2]
        return (
            f"{_dropped(blocks)}: loads of an admission held all of {below}, so that what it evicted from "
            f"{gpu} found no free blocks. None is dropped from {needed:,} blocks of {below} on: {gpu} has "
            f"{needed - 1:,}."
        )
    if "selective" in case.scenario.settings.movement.write.values():
        remedy = "write.policy=back keeps more of them"
    else:
        remedy = "A larger tier below" + (
            " keeps them" if waits else " or cache.overflow=wait keeps more of them"
        )
    return f"{_dropped(blocks)}: not written down, or behind a block that left. {remedy}."


def blocks_without_drops(case: Case) -> int | None:
    """Return the blocks of the tier below the GPU from which on no admission can hold all of it by its loads.

    What is being loaded has its blocks on the GPU already, so a larger tier has blocks left. None if drops
    have another cause.
    """
    machine, settings = case.scenario.settings.machines[0], case.scenario.settings
    sizes = [tier.capacity_blocks for tier in machine.tiers[:2]]
    is_plain = settings.cache.overflow == "wait" and "selective" not in settings.movement.write.values()
    if not is_plain or len(sizes) < 2 or sizes[0] is None or sizes[1] is None or sizes[1] > sizes[0]:
        return None
    return sizes[0] + 1


def _blocks(count: int) -> str:
    return f"{count:,} block{'s' if count != 1 else ''}"


def _dropped(count: int) -> str:
    return f"{_blocks(count)} {'were' if count != 1 else 'was'} dropped"


def used(tier: str, case: Case) -> str | None:
    """Return the share of prompt tokens that a tier, or the other machines, served."""
    tokens = case.hit_tokens(tier)
    if not tokens:
        return _prefetched(tier, case)
    readers = int((case.run.finished[f"cached_{tier}_tokens"] > 0).sum())
    waited = case.mean_ms(f"fetch_{tier}_ns") * len(case.run.finished["request"]) / readers
    return (
        f"{tier} served {percent(tokens / case.prompt_tokens)} of prompt tokens to {readers:,} "
        f"request{'s' * (readers != 1)}, with a mean wait of {format_time_ms(waited)}."
        f"{' ' + more if (more := _prefetched(tier, case)) else ''}"
    )


def _prefetched(tier: str, case: Case) -> str | None:
    """Return what prefetches and loads read from the lowest tier, where prefetches move its hits up."""
    read_bytes = case.run.summary.get("tiers", {}).get(tier, {}).get("read_bytes", 0)
    if case.scenario.settings.movement.prefetch == "none" or tier != case.tiers[-1] or not read_bytes:
        return None
    return (
        f"Prefetches and loads read {format_bytes(read_bytes)} from {tier}; prefetched blocks hit above it."
    )


def _write_back_ms(tier: str, case: Case) -> float:
    """Return the mean wait of a request for writes of evicted blocks to a tier: of those below the GPU."""
    return case.mean_ms("fetch_room_ns") if tier == TIERS[COMPUTE + 1] else 0.0


def policy_without_choice(case: Case) -> str | None:
    """The eviction policy had no effect."""
    if any(case.evictions(tier) for tier in case.tiers):
        return None
    policy = case.scenario.settings.cache.policy
    return f"The eviction policy ({policy}) had no effect: no block was evicted."


def router_without_choice(case: Case) -> str | None:
    """The router had one machine."""
    if len(case.scenario.settings.machines) > 1:
        return None
    return "The router had no effect: there is one machine."


def idle_machines(case: Case) -> str | None:
    """Machines that received no request."""
    requests = case.run.summary.get("machines", {}).get("requests", [])
    roles = [machine.role for machine in case.scenario.settings.machines]
    routed = [n for n, role in zip(requests, roles, strict=False) if role != "decode"]
    if len(routed) < 2 or not (idle := routed.count(0)):
        return None
    policy = case.scenario.settings.router.policy
    return (
        f"{idle:,} of {len(routed):,} machines got no request: the router ({policy}) always preferred the "
        "others. 'kvsim explain RUN --regret' gives the cost."
    )


def scaled_fleet(case: Case) -> str | None:
    """Machine-seconds of a scaled fleet, compared with the largest fleet all the time."""
    fleet, scaling = case.run.summary.get("fleet", {}), case.scenario.settings.membership.scaling
    rows = case.run.requests
    if scaling is None or not len(rows["arrival_ns"]):
        return None
    span_s = (int(rows["finish_ns"].max()) - int(rows["arrival_ns"].min())) / 1e9
    serving = [scaling.first]
    for change in fleet["changes"]:
        serving.append(serving[-1] + {"serves": 1, "drains": -1}.get(change["change"], 0))
    kept = scaling.most * span_s
    saved = f", {percent(fleet['machine_s'] / kept)} of keeping {scaling.most:,}" if kept else ""
    return (
        f"The scaling policy ({scaling.policy}) kept {min(serving):,} to {max(serving):,} machines in "
        f"service: {fleet['ordered']:,} ordered, {fleet['released']:,} released, "
        f"{fleet['machine_s']:,.0f} machine-seconds{saved}."
    )


def write_policy_without_choice(case: Case) -> str | None:
    """Movement policies without a lower tier."""
    if len(case.tiers) > 1:
        return None
    return f"Write, fetch and prefetch policies had no effect: there is no tier below {case.tiers[-1]}."
