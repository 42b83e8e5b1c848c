"""Why a tier, a channel or a policy did or did not matter."""

from __future__ import annotations

from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.tiers import TIERS, WEARING


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


def unused(tier: str, case: Case) -> str | None:
    """Return why a tier served nothing."""
    reason = case.run.summary.get("tiers", {}).get(tier, {}).get("no_effect")
    if reason is None:
        return None
    above = TIERS[TIERS.index(tier) - 1]
    evicted = case.evictions(above)
    if not evicted:
        return f"{reason}."
    sentence = f"{reason} ({evicted:,} blocks were evicted from {above})."
    if case.reuse is not None and not case.reuse.missed["evicted"].sum():
        sentence += " None of them was asked for again at all: no tier of any size would have served them."
    return sentence


def used(tier: str, case: Case) -> str | None:
    """Return what a tier, or the other machines, served."""
    tokens = case.hit_tokens(tier)
    if not tokens:
        return None
    readers = int((case.run.finished[f"cached_{tier}_tokens"] > 0).sum())
    waited = case.mean_ms(f"fetch_{tier}_ns") * len(case.run.finished["request"]) / readers
    return (
        f"{tier} served {percent(tokens / case.prompt_tokens)} of the prompt tokens, to {readers:,} "
        "requests, "
        f"which waited {waited:,.2f} ms for it on average."
    )


def policy_without_choice(case: Case) -> str | None:
    """The eviction policy had nothing to decide."""
    if any(case.evictions(tier) for tier in case.tiers):
        return None
    policy = case.scenario.settings.cache.policy
    return f"The eviction policy ({policy}) had nothing to decide: no block was ever evicted."


def router_without_choice(case: Case) -> str | None:
    """The router had one machine."""
    if len(case.scenario.settings.machines) > 1:
        return None
    return "The router had nothing to decide: there is one machine."


def idle_machines(case: Case) -> str | None:
    """Machines got nothing."""
    requests = case.run.summary.get("machines", {}).get("requests", [])
    roles = [machine.role for machine in case.scenario.settings.machines]
    routed = [n for n, role in zip(requests, roles, strict=False) if role != "decode"]
    if len(routed) < 2 or not (idle := routed.count(0)):
        return None
    policy = case.scenario.settings.router.policy
    return (
        f"{idle:,} of {len(routed):,} machines got no request: the router ({policy}) found the others better "
        "each time; kvsim explain --regret says what that cost or saved."
    )


def scaled_fleet(case: Case) -> str | None:
    """Machines came and went by a policy: what that saved against keeping the most of them."""
    fleet, scaling = case.run.summary.get("fleet", {}), case.scenario.settings.membership.scaling
    rows = case.run.requests
    if scaling is None or not len(rows["arrival_ns"]):
        return None
    span_s = (int(rows["finish_ns"].max()) - int(rows["arrival_ns"].min())) / 1e9
    serving = [scaling.first]
    for own in fleet["changes"]:
        serving.append(serving[-1] + {"serves": 1, "drains": -1}.get(own["change"], 0))
    kept = scaling.most * span_s
    saved = f", {percent(fleet['machine_s'] / kept)} of keeping {scaling.most:,}" if kept else ""
    return (
        f"From {min(serving):,} to {max(serving):,} machines served by {scaling.policy}: "
        f"{fleet['ordered']:,} ordered, {fleet['released']:,} let go, "
        f"{fleet['machine_s']:,.0f} machine-seconds{saved}."
    )


def write_policy_without_choice(case: Case) -> str | None:
    """There is nowhere to write to."""
    if len(case.tiers) > 1:
        return None
    return (
        f"Write, fetch and prefetch policies had nothing to decide: there is no tier below {case.tiers[-1]}."
    )
