"""Every sentence of ``kvsim explain`` by topic, in printed order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, REMOTE, TIERS
from kvcache_sim.report.explain import faults, hit_rate, latency, tiers
from kvcache_sim.report.explain.break_even import break_even, net
from kvcache_sim.report.explain.case import Case

Sentence = Callable[[Case], str | None]

#: topic → name → the function of the sentence; it returns None where its cause is absent.
SENTENCES: dict[str, dict[str, Sentence]] = {
    "Why the hit rate is what it is": {
        "synthesised": hit_rate.synthesised,
        "upper-bound": hit_rate.upper_bound,
        "no-trace": hit_rate.no_trace,
        "at-upper-bound": hit_rate.at_upper_bound,
        "nothing-repeats": hit_rate.nothing_repeats,
        "never-seen": hit_rate.never_seen,
        "diverged": partial(hit_rate.missed, "diverged"),
        "evicted": hit_rate.evicted,
        "evictors": hit_rate.evictors,
        "elsewhere": hit_rate.elsewhere,
        "not-ready": partial(hit_rate.missed, "not_ready"),
        "not-admitted": partial(hit_rate.missed, "not_admitted"),
        "partial-block": partial(hit_rate.missed, "partial_block"),
        "not-loaded": partial(hit_rate.missed, "not_loaded"),
        "window-moved-on": partial(hit_rate.missed, "window_moved_on"),
        "no-checkpoint": partial(hit_rate.missed, "no_checkpoint"),
        "shorter": hit_rate.shorter,
    },
    "What TTFT is made of": {
        "saturated": latency.saturated,
        "growing-queue": latency.growing_queue,
        "near-saturation": latency.near_saturation,
        "parts": latency.parts,
        "queueing": latency.queueing,
        "prefilling": latency.prefilling,
        "fetching": latency.fetching,
        "waiting-for-room": latency.write_back,
        "batch-stalls": latency.batch_stalls,
        "handovers": latency.handovers,
        "preemptions": latency.preemptions,
        "rejections": latency.rejections,
    },
    "What faults cost": {"losses": faults.losses, "recovery": faults.recovered},
    "What mattered and what did not": {
        **{
            f"{tier}-{said}": partial(say, tier)
            for tier in TIERS[COMPUTE + 1 :]
            for said, say in (("used", tiers.used), ("unused", tiers.unused))
        },
        f"{KV_SOURCES[REMOTE]}-used": partial(tiers.used, KV_SOURCES[REMOTE]),
        "net-of-loads": net,
        "none-returns": tiers.none_returns,
        "channel-too-slow": tiers.too_slow,
        "dropped": tiers.dropped,
        "drive-writes": tiers.drive_writes,
        "policy-without-choice": tiers.policy_without_choice,
        "router-without-choice": tiers.router_without_choice,
        "idle-machines": tiers.idle_machines,
        "scaled-fleet": tiers.scaled_fleet,
        "write-policy-without-choice": tiers.write_policy_without_choice,
    },
    "Loading or computing again": {
        f"break-even-{tier}": partial(break_even, tier) for tier in TIERS[COMPUTE + 1 :]
    },
}


def explain(case: Case) -> dict[str, dict[str, str]]:
    """Return topic → name → sentence, without the topics that have no sentence."""
    said = {
        topic: {name: text for name, say in group.items() if (text := say(case)) is not None}
        for topic, group in SENTENCES.items()
    }
    return {topic: group for topic, group in said.items() if group}
