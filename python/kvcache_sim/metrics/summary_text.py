"""The summary for people: at most 80 columns and 25 lines."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from kvcache_sim.metrics.percentiles import STATISTICS
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.replay.miss_causes import reported_by

_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue")
_HIT_RATES = (
    ("hit rate", "token", "of tokens: cached / prompt tokens of admitted requests"),
    ("", "block", "of blocks: cached / full blocks of their prompts"),
    ("", "request", "mean over requests of cached / prompt tokens"),
)


def summary_text(summary: Mapping[str, Any], title: str, subject: str = "") -> str:
    """Return the text of ``summary.json``: ``subject`` (the simulated scenario) if given, then ``title``."""
    requests, tokens, cache = summary["requests"], summary["tokens"], summary["cache"]
    parts = summary["latency"]["ttft_parts"]
    reasons = [tier["no_effect"] for tier in summary["tiers"].values() if tier["no_effect"]]
    slo = summary.get("slo")
    gap = [""] * (not reasons and not subject and slo is None)  # 25 lines have one line for these
    lines = [
        *wrap(subject, 80, break_long_words=True),
        title[:80],
        "requests   " + _counts({k: v for k, v in requests.items() if v or k not in ("aborted", "failed")}),
        *_fleet(summary.get("fleet")),
        *_context_window(summary.get("context_window")),
        *measured(summary.get("measure")),
        "tokens     " + _counts({k: tokens[k] for k in ("input", "output", "cached", "prefilled")}),
        *(
            f"{label:<11}{percent(cache[f'{kind}_hit_rate'])} {meaning}"
            for label, kind, meaning in _HIT_RATES
        ),
        "hit tokens " + _counts(cache["hit_tokens"]),
        "evictions  " + _counts(cache["evictions"]),
        *_misses(summary.get("misses")),
        *(f"{'' if n else 'no effect':<11}{reason}" for n, reason in enumerate(reasons)),
        *_machines(summary["machines"]),
        *labelled("prefix", summary["prefix_cache"]["ttft_hit_vs_miss"]["sentence"]),
        *gap,
        f"{'ms':<6}" + "".join(f"{name:>9}" for name in STATISTICS),
    ]
    for name in _LATENCIES:
        row = summary["latency"][name]
        lines.append(f"{name:<6}" + "".join(f"{number(row[statistic]):>9}" for statistic in STATISTICS))
    lines += [
        *_sum_of_parts(summary["latency"]["ttft"]["avg"], parts),
        *_handovers(summary["handover"]),
        *gap,
        "throughput " + throughput(summary["throughput"]),
        *_jobs(summary.get("jobs")),
        *_attainment(slo, summary.get("goodput")),
        f"digest     events {summary['digest']['events'][:24]}  results {summary['digest']['results'][:24]}",
        *_prices(summary.get("cost")),
        f"took       {summary['wall']['cpu_s']:.2f} CPU s, "
        f"{summary['wall']['peak_rss_bytes'] / 2**20:.0f} MiB, "
        f"{summary['engine']['steps']:,} steps, {summary['engine']['name']} engine",
    ]
    return "\n".join(lines)


def measured(measure: Mapping[str, Any] | None) -> list[str]:
    """Return the measured requests, if these are not all."""
    if measure is None:
        return []
    first, last = measure["from_request"], measure["to_request"]
    settled = "" if measure["settled"] else ", not settled"
    return [f"measured   {measure['requests']:,} requests, of {first:,} to {last:,}{settled}"]


def _fleet(fleet: Mapping[str, int] | None) -> list[str]:
    """Return the changes of the fleet, if any."""
    if fleet is None:
        return []
    found = []
    if "retried" in fleet:
        machines = _counts({name: fleet[name] for name in ("joined", "drained", "lost")})
        found.append(f"{machines}; {fleet['retried']:,} requests started again")
    if fleet.get("tiers_lost"):
        found.append(f"{fleet['tiers_lost']:,} times a tier lost its copies, {fleet['blocks_lost']:,} blocks")
    if fleet.get("index_lost"):
        found.append(f"{fleet['index_lost']:,} times the router lost its index")
    return [f"fleet      {'; '.join(found)}"]


def _context_window(window: Mapping[str, int] | None) -> list[str]:
    """Return the requests that the context window shortened or rejected, if there is a window."""
    if window is None:
        return []
    return [
        f"window     {window['max_model_len']:,} tokens: {window['shortened']:,} requests lost "
        f"{window['dropped_tokens']:,}, {window['rejected']:,} rejected"
    ]


def _sum_of_parts(ttft: float | None, parts: Mapping[str, Any]) -> list[str]:
    """Return the parts of the mean TTFT; the hand-over is included if there is one."""
    named = [part.name for part in ROWS if parts[part.name]["avg"] or not part.only_if_any]
    widths = {name: max(len(name), 8 if len(named) < len(ROWS) else 6) for name in named}
    return [
        "TTFT avg = " + " + ".join(f"{part:>{width}}" for part, width in widths.items()),
        f"{number(ttft):>8} = "
        + " + ".join(f"{number(parts[part]['avg']):>{width}}" for part, width in widths.items()),
    ]


def _prices(cost: Mapping[str, float | None] | None) -> list[str]:
    """Return the cost of the run at the scenario's prices, if it has any."""
    if cost is None:
        return []
    names = {"per_million_tokens": "a million tokens", "per_hour": "an hour", "total": "in all"}
    return ["cost       " + "  ".join(f"{number(cost[name])} {words}" for name, words in names.items())]


def _handovers(handover: Mapping[str, Any]) -> list[str]:
    """Return the cost of hand-overs, on one line, if there are any."""
    if not handover["requests"]:
        return []
    share, wait = handover["share_of_ttft"], handover["wait"]
    text = f"{handover['requests']:,} requests  wait avg {number(wait['avg'])} p99 {number(wait['p99'])} ms"
    return [f"handover   {text}  {percent(share).strip()} of their TTFT"]


def _machines(spread: Mapping[str, Any]) -> list[str]:
    """Return the balance of requests over several machines, on one line."""
    loads = spread["requests"]
    if len(loads) < 2:
        return []
    evenness = f"max/mean {spread['max_over_mean']:.2f}  Jain {spread['jain']:.3f}"
    each = " ".join(map(str, loads))
    if len(each) > 30:
        each = f"{min(loads):,} to {max(loads):,} on {len(loads):,}"
    idle = loads.count(0)
    return [f"machines   {each} requests  {evenness}" + (f"  {idle:,} idle" if idle else "")]


def labelled(label: str, sentence: str) -> list[str]:
    """Return a sentence as lines of at most 80 columns after its label."""
    indent = " " * 11
    return wrap(sentence, 80, initial_indent=f"{label:<11}", subsequent_indent=indent)


def _counts(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{_count(value)} {name}" for name, value in counts.items())


def _count(value: int) -> str:
    """Return a count in at most 10 characters: exact below ten million."""
    if value >= 10**13:
        return f"{value:.2e}"
    return f"{value / 1e6:,.1f}M" if value >= 10**7 else f"{value:,}"


def percent(share: float | None) -> str:
    """Return a share as a percentage with two decimals, ``none`` if nothing was measured."""
    return "   none" if share is None else f"{100 * share:5.2f} %"


def number(value: float | None) -> str:
    """Return a number in at most 8 characters."""
    if value is None:
        return "-"
    if value >= 1e7:
        return f"{value:.2e}"
    return f"{value:.0f}" if value >= 1e4 else f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def throughput(rates: Mapping[str, float | None]) -> str:
    """Return requests and output tokens per second in words."""
    requests, tokens = rates["requests_per_s"], rates["output_tokens_per_s"]
    if requests is None or tokens is None:
        return "none: no simulated time passed"
    return f"{requests:,.2f} requests/s  {tokens:,.1f} output tokens/s"


def _jobs(jobs: Mapping[str, Any] | None) -> list[str]:
    """Return the completion times of agents and sessions, if requests wait for others."""
    if jobs is None or not jobs["completed"]:
        return []
    took = jobs["completion"]
    text = f"{jobs['completed']:,} of {jobs['count']:,} jobs; completion in s: mean {took['avg'] / 1e3:,.2f}"
    return [f"jobs       {text}  p50 {took['p50'] / 1e3:,.2f}  p99 {took['p99'] / 1e3:,.2f}"]


def _attainment(slo: Mapping[str, Any] | None, goodput: Mapping[str, float | None] | None) -> list[str]:
    """Return the attainment of the objectives, if there are any."""
    if slo is None or goodput is None:
        return []
    text = f"{percent(slo['attainment']).strip()} of {slo['judged']:,}; goodput "
    lines = ["slo        " + text + throughput(goodput)]
    for name, own in slo["classes"].items():
        lines.append(f"{'':<11}{percent(own['attainment'])} of {own['judged']:,} {name}")
    return lines


def _misses(misses: Mapping[str, Any] | None) -> list[str]:
    """Return the causes of missed tokens, if the run computed them."""
    if misses is None:
        return []
    names = [cause.name for cause in reported_by("timed")]
    missed = {name.replace("_", " "): misses[name] for name in names if misses[name]}
    lines = wrap(_counts(missed), 68, break_long_words=False)
    return [f"{'misses' if n == 0 else '':<11}{line}" for n, line in enumerate(lines)]


_UNSERVED = ("rejected", "failed", "aborted")


def brief_text(summary: Mapping[str, Any], title: str, subject: str) -> str:
    """Return the simulated scenario, ``title``, and the main figures, in 80 columns."""
    ttft, tpot = summary["latency"]["ttft"], summary["latency"]["tpot"]
    turned_away = [f"{n:,} {name}" for name, n in summary["requests"].items() if n and name in _UNSERVED]
    lines = [
        *wrap(subject, 80, break_long_words=True),
        title[:80],
        *([f"requests   {'  '.join(turned_away)}"] if turned_away else []),
        *measured(summary.get("measure")),
        f"hit rate   {percent(summary['cache']['token_hit_rate']).strip()} of tokens",
        f"ms         TTFT mean {number(ttft['avg'])}, p50 {number(ttft['p50'])}, p99 {number(ttft['p99'])}; "
        f"TPOT mean {number(tpot['avg'])}",
        f"throughput {throughput(summary['throughput'])}",
    ]
    for tier in summary["tiers"].values():
        if tier["no_effect"]:
            lines += labelled("no effect", tier["no_effect"])
    return "\n".join(lines)
