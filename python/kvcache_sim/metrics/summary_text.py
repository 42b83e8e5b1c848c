"""The summary for people, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from kvcache_sim.base.units import format_bytes, format_percent, format_time_ms, significant
from kvcache_sim.metrics.certainty import certainty_lines, source_line
from kvcache_sim.metrics.percentiles import STATISTICS
from kvcache_sim.metrics.saturation import saturation_sentence
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.replay.miss_causes import reported_by

_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue")
_JOB_TIMES = {"mean": "avg", "p50": "p50", "p99": "p99"}
_HIT_RATES = (
    ("hit rate", "token", "of tokens: cached / prompt tokens of admitted requests"),
    ("", "block", "of blocks: cached / full blocks of their prompts"),
    ("", "request", "mean over requests of cached / prompt tokens"),
)


def summary_text(summary: Mapping[str, Any], title: str, subject: str = "") -> str:
    """Return the text of ``summary.json``: the subject of the run, if given, then ``title``."""
    requests, tokens, cache = summary["requests"], summary["tokens"], summary["cache"]
    parts = summary["latency"]["ttft_parts"]
    reasons = [tier["no_effect"] for tier in summary["tiers"].values() if tier["no_effect"]]
    slo = summary.get("slo")
    gap = [""] * (not reasons and not subject and slo is None)  # a short text has a gap
    lines = [
        *wrap(subject, 80, break_long_words=True),
        *source_lines(summary),
        title[:80],
        "requests   " + _counts({k.replace("_", " "): v for k, v in requests.items() if _is_listed(k, v)}),
        *_fleet(summary.get("fleet")),
        *_context(summary.get("context_window")),
        *measured(summary.get("measure")),
        "tokens     " + _counts({k: tokens[k] for k in ("input", "output", "cached", "prefilled")}),
        *(
            f"{label:<11}{percent(cache[f'{kind}_hit_rate'])} {meaning}"
            for label, kind, meaning in _HIT_RATES
        ),
        "hit tokens " + _counts(cache["hit_tokens"]),
        "evictions  " + _counts(cache["evictions"]),
        *_dropped(cache["dropped_blocks"]),
        *_misses(summary.get("misses")),
        *(f"{'' if n else 'no effect':<11}{reason}" for n, reason in enumerate(reasons)),
        *_machines(summary["machines"]),
        *labelled("prefix", summary["prefix_cache"]["ttft_hit_vs_miss"]["sentence"]),
        *gap,
        f"{'ms':<6}" + "".join(f"{name:>9}" for name in STATISTICS),
    ]
    for name in _LATENCIES:
        row = summary["latency"][name]
        lines.append(f"{name:<6}" + "".join(f"{time_cell(row[statistic]):>9}" for statistic in STATISTICS))
    lines += [
        *_sum_of_parts(summary["latency"]["ttft"]["avg"], parts),
        *_handovers(summary["handover"]),
        *gap,
        "throughput " + throughput(summary["throughput"]),
        *_listed("certainty", certainty_lines(summary)),
        *labelled("saturated", saturation_sentence(summary)),
        *_jobs(summary.get("jobs")),
        *_attainment(slo, summary.get("goodput")),
        f"digest     events {summary['digest']['events'][:24]}  results {summary['digest']['results'][:24]}",
        *_prices(summary.get("cost")),
        f"took       {_speed(summary)}",
    ]
    return "\n".join(lines)


def _speed(summary: Mapping[str, Any]) -> str:
    """Return the CPU time, the memory, and the requests and steps that were simulated per CPU second."""
    wall, engine = summary["wall"], summary["engine"]
    cpu_s = max(wall["cpu_s"], 1e-6)
    requests, steps = (
        "<0.01" if rate < 0.01 else significant(rate)
        for rate in (summary["requests"]["arrived"] / cpu_s, engine["steps"] / cpu_s)
    )
    memory = format_bytes(wall["peak_rss_bytes"])
    return f"{significant(cpu_s)} CPU s, {memory}, {requests} requests/s, {steps} steps/s ({engine['name']})"


def measured(measure: Mapping[str, Any] | None) -> list[str]:
    """Return the measured requests, if these are not all."""
    if measure is None:
        return []
    first, last = measure["from_request"], measure["to_request"]
    settled = "" if measure["settled"] else ", not settled"
    return [f"measured   {measure['requests']:,} requests, of {first:,} to {last:,}{settled}"]


def _dropped(blocks: int) -> list[str]:
    """Return the number of dropped blocks, if any."""
    said = "unwritten or orphaned: a larger lower tier keeps them"
    return labelled("dropped", f"{blocks:,} block{'s' * (blocks != 1)}, {said}") if blocks else []


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


def _context(context: Mapping[str, int] | None) -> list[str]:
    """Return the requests that the model's context rejected or changed, if any, and the remedy."""
    if context is None:
        return []
    found = []
    if rejected := context["rejected"]:
        found.append(
            f"{rejected:,} prompt{'s' * (rejected != 1)} of {context['max_model_len']:,} tokens or more "
            "rejected: replica.on_overflow=slide, or another replica.max_model_len"
        )
    if context["shortened"]:
        found.append(f"{context['shortened']:,} prompts lost {context['dropped_tokens']:,} tokens of history")
    if context["answers_ended"]:
        many = context["answers_ended"] != 1
        found.append(
            f"{context['answers_ended']:,} answer{'s end' if many else ' ends'} at "
            f"{context['max_model_len']:,} tokens"
        )
    return labelled("context", "; ".join(found)) if found else []


def _sum_of_parts(ttft: float | None, parts: Mapping[str, Any]) -> list[str]:
    """Return the parts of the mean TTFT; the hand-over is included if there is one."""
    named = [part.name for part in ROWS if parts[part.name]["avg"] or not part.only_if_any]
    widths = {name: max(len(name), 8 if len(named) < len(ROWS) else 6) for name in named}
    return [
        "TTFT avg = " + " + ".join(f"{part:>{width}}" for part, width in widths.items()),
        f"{time_cell(ttft):>8} = "
        + " + ".join(f"{time_cell(parts[part]['avg']):>{width}}" for part, width in widths.items()),
    ]


def _prices(cost: Mapping[str, Any] | None) -> list[str]:
    """Return the cost of the run at the scenario's prices, if it has any."""
    if cost is None:
        return []
    names = {"per_million_output_tokens": "a million output tokens", "per_hour": "an hour", "total": "in all"}
    currency = f"{cost['currency']} " if cost.get("currency") else ""
    parts = (f"{currency}{_price(cost[name])} {words}" for name, words in names.items())
    return ["cost       " + "  ".join(parts)]


def _price(value: float | None) -> str:
    return "-" if value is None else significant(value)


def _handovers(handover: Mapping[str, Any]) -> list[str]:
    """Return the cost of hand-overs, on one line, if there are any."""
    if not handover["requests"]:
        return []
    share, wait = handover["share_of_ttft"], handover["wait"]
    average, tail = (_time(wait[statistic]) for statistic in ("avg", "p99"))
    text = f"{handover['requests']:,} requests  wait avg {average} p99 {tail}"
    return [f"handover   {text}  {percent(share).strip()} of their TTFT"]


def _machines(spread: Mapping[str, Any]) -> list[str]:
    """Return the balance of requests over several machines, on one line."""
    loads = spread["requests"]
    if len(loads) < 2:
        return []
    evenness = f"max/mean {spread['max_over_mean']:.2f}  Jain {spread['jain']:.3f}"
    each = " ".join(f"{load:,}" for load in loads)
    if len(each) > 30:
        each = f"{min(loads):,} to {max(loads):,} on {len(loads):,}"
    idle = loads.count(0)
    return [f"machines   {each} requests  {evenness}" + (f"  {idle:,} idle" if idle else "")]


def labelled(label: str, sentence: str) -> list[str]:
    """Return a sentence as lines of at most 80 columns after its label."""
    indent = " " * 11
    return wrap(sentence, 80, initial_indent=f"{label:<11}", subsequent_indent=indent)


def source_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the source of the step times in 80 columns; none where no time passes."""
    return wrap(source_line(summary), 80, subsequent_indent="  ", break_on_hyphens=False)


def _listed(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{'' if n else label:<11}{line}" for n, line in enumerate(lines)]


def _counts(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{_count(value)} {name}" for name, value in counts.items())


def _count(value: int) -> str:
    """Return a count in at most 10 characters: exact below ten million."""
    if value >= 10**13:
        return f"{value:.2e}"
    return f"{value / 1e6:,.1f}M" if value >= 10**7 else f"{value:,}"


def percent(share: float | None) -> str:
    """Return a share as a percentage of three digits, ``none`` where nothing was measured."""
    return f"{'none' if share is None else format_percent(share):>7}"


def time_cell(value: float | None) -> str:
    """Return a time in ms in at most 8 characters: bare ms, or with its unit from 100 s on."""
    if value is None:
        return "-"
    return format_time_ms(value) if value >= 99_999.5 else significant(value)


def _time(value: float | None) -> str:
    """Return a time of so many ms with its unit."""
    return "-" if value is None else format_time_ms(value)


def throughput(rates: Mapping[str, float | None]) -> str:
    """Return requests and output tokens per second in words."""
    requests, tokens = rates["requests_per_s"], rates["output_tokens_per_s"]
    if requests is None or tokens is None:
        return "none: no simulated time passed"
    return f"{significant(requests)} requests/s  {significant(tokens)} output tokens/s"


def _jobs(jobs: Mapping[str, Any] | None) -> list[str]:
    """Return the completion times of agents and sessions, if requests wait for others."""
    if jobs is None or not jobs["completed"]:
        return []
    took = jobs["completion"]
    times = (f"{word} {format_time_ms(took[name])}" for word, name in _JOB_TIMES.items())
    return [f"jobs       {jobs['completed']:,} of {jobs['count']:,} completed; time {'  '.join(times)}"]


def _attainment(slo: Mapping[str, Any] | None, goodput: Mapping[str, float | None] | None) -> list[str]:
    """Return the attainment of the objectives, if there are any."""
    if slo is None or goodput is None:
        return []
    text = f"{percent(slo['attainment']).strip()} of {slo['judged']:,}; goodput "
    lines = ["slo        " + text + throughput(goodput)]
    for name, counts in slo["classes"].items():
        lines.append(f"{'':<11}{percent(counts['attainment'])} of {counts['judged']:,} {name}")
    return lines


def _misses(misses: Mapping[str, Any] | None) -> list[str]:
    """Return the causes of missed tokens, if the run computed them."""
    if misses is None:
        return []
    names = [cause.name for cause in reported_by("timed")]
    missed = {name.replace("_", " "): misses[name] for name in names if misses[name]}
    lines = wrap(_counts(missed), 68, break_long_words=False)
    return [f"{'misses' if n == 0 else '':<11}{line}" for n, line in enumerate(lines)]


_UNSERVED = ("rejected", "turned_away", "failed", "aborted")


def _is_listed(name: str, count: int) -> bool:
    """Return True for a count of requests that the line lists; some only if there are any."""
    return name != "rejected_beyond_context" and (count > 0 or name not in _UNSERVED[1:])


def brief_text(summary: Mapping[str, Any], title: str, subject: str) -> str:
    """Return the simulated scenario, ``title``, and the main figures, in 80 columns."""
    ttft, tpot = summary["latency"]["ttft"], summary["latency"]["tpot"]
    ttfts = ", ".join(f"{words} {_time(ttft[name])}" for words, name in _JOB_TIMES.items())
    latency = f"latency    TTFT {ttfts}; TPOT mean {_time(tpot['avg'])}"
    turned_away = [
        f"{n:,} {name.replace('_', ' ')}"
        for name, n in summary["requests"].items()
        if n and name in _UNSERVED
    ]
    lines = [
        *wrap(subject, 80, break_long_words=True),
        *source_lines(summary),
        title[:80],
        *([f"requests   {'  '.join(turned_away)}"] if turned_away else []),
        *_context(summary.get("context_window")),
        *measured(summary.get("measure")),
        f"hit rate   {percent(summary['cache']['token_hit_rate']).strip()} of tokens",
        *(_listed("certainty", certainty_lines(summary)) or [latency]),
        f"throughput {throughput(summary['throughput'])}",
        *labelled("saturated", saturation_sentence(summary)),
    ]
    for tier in summary["tiers"].values():
        if tier["no_effect"]:
            lines += labelled("no effect", tier["no_effect"])
    return "\n".join(lines)
