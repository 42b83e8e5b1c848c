"""The names of the numbers in ``summary.json``, their units, and resolution of short names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, TIERS, WEARING
from kvcache_sim.metrics.columns import FETCH_PARTS, TTFT_PARTS

_STATISTICS = ("avg", "min", "max", "p99", "p90", "p75", "p50", "std")

#: Every number this project keeps stable in ``summary.json``, by dotted name, with its unit ("" for counts
#: and shares of one).
STABLE_METRICS: dict[str, str] = {
    **{f"requests.{name}": "" for name in ("arrived", "finished", "rejected", "failed", "preemptions")},
    **{f"tokens.{name}": "tokens" for name in ("input", "output", "cached", "prefilled")},
    **{f"cache.{name}": "blocks" for name in ("block_refs", "hit_blocks")},
    **{f"cache.{name}_hit_rate": "share" for name in ("token", "block", "request")},
    **{f"cache.hit_tokens.{tier}": "tokens" for tier in KV_SOURCES},
    **{f"cache.evictions.{tier}": "blocks" for tier in TIERS},
    **{
        f"latency.{name}.{statistic}": "ms"
        for name in ("ttft", "tpot", "itl", "e2e", "queue")
        for statistic in _STATISTICS
    },
    **{f"latency.ttft_parts.{part}.avg": "ms" for part in TTFT_PARTS},
    **{f"latency.fetch_parts.{part}.avg": "ms" for part in FETCH_PARTS},
    **{f"tiers.{tier}.written_bytes": "bytes" for tier in TIERS},
    **{f"tiers.{tier}.read_bytes": "bytes" for tier in TIERS},
    **{f"tiers.{tier}.duplicate_blocks": "blocks" for tier in TIERS[COMPUTE + 1 :]},
    **{f"tiers.{tier}.drive_writes_per_day": "1/d" for tier in WEARING},
    "handover.requests": "",
    "handover.share_of_ttft": "share",
    **{f"handover.{name}.{statistic}": "ms" for name in ("wait", "room") for statistic in ("avg", "p99")},
    **{f"prefix_cache.{name}_hit_rate": "share" for name in ("overall", "conversational", "cross_request")},
    "prefix_cache.avg_cached_prefix_length_on_hit": "tokens",
    "prefix_cache.avg_tokens_prefilled": "tokens",
    "prefix_cache.prefill_ratio": "share",
    "prefix_cache.ttft_hit_vs_miss.hit.p50": "ms",
    "prefix_cache.ttft_hit_vs_miss.miss.p50": "ms",
    "throughput.requests_per_s": "1/s",
    "throughput.output_tokens_per_s": "1/s",
    **{f"slo.{name}": "" for name in ("judged", "attained")},
    "slo.attainment": "share",
    **{f"slo.{name}_attainment": "share" for name in ("ttft", "tpot", "e2e")},
    **{f"goodput.{name}_per_s": "1/s" for name in ("requests", "output_tokens", "tokens")},
    "cost.total": "cost",
    "cost.per_hour": "cost",
    "cost.per_million_output_tokens": "cost",
    "wall.cpu_s": "s",
    "wall.peak_rss_bytes": "bytes",
}

#: Short names whose suffix would be ambiguous, and common synonyms.
_ALIASES = {
    "cost": "cost.per_million_output_tokens",
    "hit_rate": "cache.token_hit_rate",
    "requests_per_s": "throughput.requests_per_s",
    "output_tokens_per_s": "throughput.output_tokens_per_s",
    "goodput": "goodput.requests_per_s",
}

#: Figures of a class of requests of the scenario.
_OF_A_CLASS = re.compile(r"slo\.classes\.[A-Za-z][A-Za-z0-9_-]*\.(judged|attained|attainment)")


def resolve_metric(name: str, where: str = "") -> str:
    """Return the full dotted name of a number of the summary from a full or a short name.

    ``ttft.p99`` resolves to ``latency.ttft.p99``: a short name is the end of exactly one stable name. Raises
    ``UsageError`` (with the nearest names) if none or several match.
    """
    if name in STABLE_METRICS or _OF_A_CLASS.fullmatch(name):
        return name
    if name in _ALIASES:
        return _ALIASES[name]
    found = [full for full in STABLE_METRICS if full.endswith("." + name)]
    if len(found) == 1:
        return found[0]
    short = {full.split(".", 1)[1]: full for full in STABLE_METRICS}
    near = found or close_matches(name, [*STABLE_METRICS, *short], n=3, cutoff=0.5)
    raise UsageError(
        f"{'ambiguous' if found else 'unknown'} metric {name!r}",
        where=where,
        expected="a number of summary.json, such as ttft.p99 or cache.token_hit_rate",
        hint=f"did you mean {', '.join(near)}?" if near else "",
    )


def unit_of(metric: str) -> str:
    """Return the unit of a number by its full dotted name; "" of counts."""
    if metric in STABLE_METRICS:
        return STABLE_METRICS[metric]
    return "share" if metric.endswith(".attainment") else ""


def flatten(summary: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return a nested summary as dotted names to leaves, in the summary's own order."""
    flat: dict[str, object] = {}
    for key, value in summary.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def metric_value(summary: Mapping[str, object], name: str) -> float | None:
    """Return the number under a full dotted name, or None if the run has none (nothing was measured)."""
    node: object = summary
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    if isinstance(node, bool) or not isinstance(node, (int, float)):
        return None
    return float(node)
