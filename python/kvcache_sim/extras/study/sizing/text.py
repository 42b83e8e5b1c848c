"""The answer of a search for capacity as sentences, as a table, and drawn as cost against rate."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.units import format_time_ms, format_time_ns, parse_time_ns, significant
from kvcache_sim.extras.study.sizing.counts import count_sentences, machines
from kvcache_sim.extras.study.sizing.further import (
    ADDED,
    DECODE,
    PREFILL,
    groups_of,
    rates_by_count,
    tried_of_row,
)
from kvcache_sim.extras.study.sizing.question import RATE, Answer, Row, load_of, settings_text
from kvcache_sim.extras.study.sizing.splits import split_sentences
from kvcache_sim.extras.study.sweeps.single_run import typed
from kvcache_sim.metrics.certainty import NOT_MEASURED, band, source_lines_of
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value
from kvcache_sim.report.plain_table import plain_sentences, plain_table
from kvcache_sim.report.unserved import unserved_text

_SLOW = "step_times.factor_high"


def answer_text(answer: Answer, attain: float) -> str:
    """Return the text for a terminal: a table of several candidates, and sentences."""
    parts = [line for line in source_lines_of(answer.rows) if NOT_MEASURED in line]
    if len(answer.rows) > 1:
        parts.append(plain_table(candidate_table(answer)))
    parts.append(
        plain_sentences(
            [*_sentences(answer, attain), *_searched(answer), *_remarks(answer, attain), *_sources(answer)]
        )
    )
    return "\n".join(parts)


def candidate_table(answer: Answer) -> Table:
    """Return a row a candidate: its settings, the rate it holds, its cost, and its verdict if not found."""
    names = [name for name in answer.rows[0] if name.startswith("set.")] if answer.rows else []
    pooled = [name for name in names if answer.pools and name.removeprefix("set.") in (PREFILL, DECODE)]
    names = [name for name in names if name not in pooled]
    headings = [name.removeprefix("set.") for name in names] + (["pools"] if pooled else [])
    columns: list[list[Value]] = [[_cell(row.get(name)) for name in names] for row in answer.rows]
    for row, cells in zip(answer.rows, columns, strict=True):
        holds = row in answer.holding
        cells += [pools_text(row)] if pooled else []
        cells.append(f"{_held(answer, row)} {_band(row)}".rstrip() if holds else "-")
        cells += [significant(answer.price(row)) if holds else "-"]
        cells += (
            [_figure(row, "cost.per_million_output_tokens") if holds else "-"] if answer.is_priced else []
        )
    headings += [
        "rate/s" if answer.load is RATE else "sessions",
        *(("cost/h", "cost/M output tokens") if answer.is_priced else ("machines",)),
    ]
    verdicts = [str(row.get("capacity.verdict") or row["status"]) for row in answer.rows]
    if set(verdicts) != {"found"}:
        headings.append("verdict")
        columns = [[*cells, verdict] for cells, verdict in zip(columns, verdicts, strict=True)]
    front = {row["cell"] for row in answer.frontier}
    rows = [
        (f"{row['cell']}{' *' * (row is answer.cheapest)}", *cells, "front" if row["cell"] in front else "")
        for row, cells in zip(answer.rows, columns, strict=True)
    ]
    rows = [rows[index] for index in _sorted(answer)]
    return Table(("cell", *headings, "frontier"), tuple(rows))


def _sorted(answer: Answer) -> list[int]:
    """Return the rows in their own order, candidates that were added next to those that they lie between."""
    if answer.unit is None and not answer.pools:
        return list(range(len(answer.rows)))

    def key(index: int) -> tuple[int, int, int]:
        row = answer.rows[index]
        group = [
            {n: v for n, v in answered.items() if n.startswith("set.") and n[4:] not in ADDED}
            for answered in answer.rows
        ]
        counts = (row.get(f"set.{name}") for name in ADDED)
        machines, prefill, _ = (count if isinstance(count, int) else 0 for count in counts)
        return group.index(group[index]), machines, prefill

    return sorted(range(len(answer.rows)), key=key)


def pools_text(row: Row) -> str:
    """Return the split of a candidate into pools: ``3+5``, or ``none``."""
    prefill, decode = row.get(f"set.{PREFILL}"), row.get(f"set.{DECODE}")
    return f"{prefill}+{decode}" if prefill else "none"


def _figure(row: Row, name: str) -> str:
    value = row.get(name)
    return significant(value) if isinstance(value, float) else "-"


def _cell(value: object) -> Value:
    return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else typed(value)


def _sentences(answer: Answer, attain: float) -> list[str]:
    if len(answer.rows) == 1:
        return [_of_one(answer, answer.rows[0], attain)]
    lines = []
    for row in answer.rows:
        if row.get("capacity.verdict") == "not monotone":
            lines.append(f"cell {row['cell']}: {_not_monotone(row, attain)}")
    cheapest = answer.cheapest
    unserved = [row for row in answer.rows if _verdict_of(row).startswith("no ")]
    if unserved:
        nearest = max(unserved, key=lambda row: float(str(row["capacity.attainment"])))
        which = (
            f"{len(unserved):,} candidates attain no {answer.load.name}; nearest is "
            if len(unserved) > 1
            else ""
        )
        lines.append(f"{which}cell {nearest['cell']}: {_of_one(answer, nearest, attain)}")
    if cheapest is None:
        asked = f"any {answer.load.name} that was tried" if answer.need_per_s is None else _needed(answer)
        return [*lines, f"no candidate holds {asked} at {100 * attain:g} %"]
    per_hour = (
        f"{significant(answer.price(cheapest))} an hour"
        if answer.is_priced
        else machines(int(str(cheapest["capacity.machines"])))
    )
    words = "cheapest per request" if answer.need_per_s is None else f"cheapest that holds {_needed(answer)}"
    rate = f"{answer.load.text(answer.rate(cheapest))}{_requests(cheapest)}"
    text = f"{words}: cell {cheapest['cell']}, {rate} for {per_hour}"
    return [
        *lines,
        f"{text} ({settings_text(cheapest) or 'without pools'})",
        *_within_interval(answer, cheapest),
    ]


def _within_interval(answer: Answer, row: Row) -> list[str]:
    """Return the sentence on a rate needed that other requests might not let a candidate hold."""
    low = row.get("capacity.requests_low_per_s") if answer.load is RATE else None
    if answer.need_per_s is None or not isinstance(low, float) or low >= answer.need_per_s:
        return []
    return [
        f"not certain: {answer.need_per_s:g} requests/s is within the interval of the requests, which begins "
        f"at {significant(low)}/s"
    ]


def _needed(answer: Answer) -> str:
    return f"{answer.need_per_s:g} {answer.load.behind}"


def _held(answer: Answer, row: Row) -> str:
    return significant(answer.rate(row)) if answer.load is RATE else f"{answer.rate(row):,.0f}"


def _verdict_of(row: Row) -> str:
    return str(row.get("capacity.verdict"))


def _band(row: Row) -> str:
    """Return the interval of a rate over requests: ``±11 %``; "" where there is none, and for sessions."""
    if load_of(row) is not RATE:
        return ""
    rate, low, high = (
        row.get(f"capacity.{name}") for name in ("rate_per_s", "requests_low_per_s", "requests_high_per_s")
    )
    if not (isinstance(rate, float) and isinstance(low, float) and isinstance(high, float)):
        return ""
    return band(low / rate, high / rate)


def _requests(row: Row) -> str:
    return f" (requests {interval})" if (interval := _band(row)) else ""


def _searched(answer: Answer) -> list[str]:
    """Return the sentences on the splits and the numbers of machines that the search added."""
    if any(row["status"] != "ok" for row in answer.rows):
        return []
    tried = [tried_of_row(row) for row in answer.rows]
    lines = []
    for group in groups_of(tried, (PREFILL, DECODE)) if answer.pools else ():
        together = next((one.rate_per_s for one in group if not one.prefill), None)
        rates = {one.prefill: one.rate_per_s for one in group if one.prefill}
        lines += split_sentences(rates, together, group[0].machines, answer.load)
    if answer.unit is not None and answer.need_per_s is not None:
        groups = [rates_by_count(group) for group in groups_of(tried, ADDED)]
        for rates in groups:
            if len(rates) > 1 or answer.cheapest is None:
                lines += count_sentences(rates, answer.need_per_s, answer.unit, answer.load)
    return lines


def _of_one(answer: Answer, row: Row, attain: float) -> str:
    verdict, percent, load = _verdict_of(row), f"{100 * attain:g} %", load_of(row)
    if row["status"] != "ok":
        return f"not searched: {row['error']}"
    if verdict.startswith("no "):
        return (
            f"no {load.name} attains {percent}: at {_rate(row, 'lowest_tried_per_s')}, the lowest tried, "
            f"{_share(row, 'attainment')} of requests are within their limits "
            f"(TTFT p50 {_time(row, 'ttft', 'p50')}, p99 {_time(row, 'ttft', 'p99')}; "
            f"TPOT p99 {_time(row, 'tpot', 'p99')})"
        )
    if verdict.startswith("every "):
        further = "raise --max-rate" if load is RATE else "raise workload.plays"
        return (
            f"every {load.name} tried attains {percent}, up to {_rate(row, 'highest_tried_per_s')}: "
            f"{further} to find the capacity"
        )
    if verdict == "not monotone":
        return _not_monotone(row, attain)
    return (
        f"holds {_rate(row, 'rate_per_s')}{_requests(row)} at {percent}: "
        f"{_share(row, 'attainment')} attained there, "
        f"{_share(row, 'below.attainment')} at {_rate(row, 'below.rate_per_s')}, "
        f"{_share(row, 'above.attainment')} at {_rate(row, 'above.rate_per_s')}"
    )


def _not_monotone(row: Row, attain: float) -> str:
    held = row.get("capacity.holds_to_per_s")
    low = (
        f"every {load_of(row).name} tried up to {_rate(row, 'holds_to_per_s')} attains"
        if held is not None
        else f"the lowest {load_of(row).name} tried does not attain"
    )
    return (
        f"attainment of {100 * attain:g} % is not monotone in the {load_of(row).name}: {low}, "
        f"the highest that attains is {_rate(row, 'attains_to_per_s')}"
    )


def _remarks(answer: Answer, attain: float) -> list[str]:
    """Return the notes on the requests, once for all candidates."""
    done = [row for row in answer.rows if row["status"] == "ok"]
    if not done:
        return []
    judged, waiting = (int(str(done[0][f"capacity.{name}"])) for name in ("judged", "waits"))
    lines = [f"note: cell {row['cell']}: {text}" for row in done if (text := unserved_text(row))]
    if done[0]["capacity.is_few"]:
        missed = int((1 - attain) * judged + 1e-9)
        allowed = f"{missed:,} may miss" if missed else "none may miss"
        lines.append(f"note: only {judged:,} requests are measured, {allowed}: use a longer trace")
    if waiting and answer.load is RATE:
        lines.append(
            f"note: {waiting:,} requests wait for others (closed loop): think times scale with arrivals, and "
            "rates are measured arrivals; --sessions finds how many sessions are held"
        )
    return lines


def _sources(answer: Answer) -> list[str]:
    """Return the sources of step times, and the question to ask again for the slow end of their errors."""
    lines = [line for line in source_lines_of(answer.rows) if NOT_MEASURED not in line]
    slow = max((high for row in answer.rows if isinstance(high := row.get(_SLOW), float)), default=1.0)
    if not source_lines_of(answer.rows) or slow < 1.005 or not answer.limits or answer.load is not RATE:
        return lines
    limits = ",".join(
        f"{name}={format_time_ns(parse_time_ns(limit) / slow).replace(' ', '')}"
        for name, limit in answer.limits.items()
    )
    need = "" if answer.need_per_s is None else f" --need {significant(answer.need_per_s * slow)}/s"
    what = "rate" if answer.need_per_s is None else "answer"
    divided = "" if need else f", and divide the rate by {slow:.3g}"
    return [*lines, f"the {what} if each step takes ×{slow:.3g}: ask with --slo {limits}{need}{divided}"]


def _rate(row: Row, name: str) -> str:
    value = row.get(f"capacity.{load_of(row).figure_of(name)}")
    return "-" if value is None else load_of(row).text(float(str(value)))


def _time(row: Row, latency: str, statistic: str) -> str:
    value = row.get(f"latency.{latency}.{statistic}")
    return "-" if value is None else format_time_ms(float(str(value)))


def _share(row: Row, name: str) -> str:
    value = row.get(f"capacity.{name}")
    return "-" if value is None else f"{100 * float(str(value)):.2f} %"


_KIND, _TITLE = "capacity", "Cost against capacity"
_DEFINITION = (
    "Each point is a candidate: the highest rate, or number of sessions, at which enough requests are within "
    "their limits, and its cost per hour. The line is the frontier: no other candidate holds as much for "
    "less. Candidates that hold none are not drawn."
)


def draw(answer: Answer, subject: str = "") -> Picture | NothingToDraw:
    """Return the picture of the candidates that hold some rate; ``subject`` names the load."""
    import altair as alt

    if not answer.holding:
        return NothingToDraw(_KIND, _TITLE, f"no candidate holds any {answer.load.name} that was tried")
    front = {row["cell"] for row in answer.frontier}
    data: list[dict[str, Value]] = [
        {
            "cell": str(row["cell"]),
            "settings": settings_text(row),
            "rate": round(answer.rate(row), 6),
            "cost": round(answer.price(row), 6),
            "front": "front" if row["cell"] in front else "none",
        }
        for row in answer.holding
    ]
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X("cost:Q", title="cost an hour" if answer.is_priced else "machines"),
        y=alt.Y(
            "rate:Q",
            title="requests a second that are held" if answer.load is RATE else "sessions that are held",
        ),
        tooltip=["cell:N", "settings:N", "rate:Q", "cost:Q"],
    )
    colour = alt.Color("front:N", scale=colour_scale(["front", "none"]), legend=None)
    line = base.transform_filter("datum.front == 'front'").mark_line(interpolate="step-after", opacity=0.5)
    points = base.mark_point(filled=True, size=70, opacity=1).encode(color=colour)
    chart: Any = alt.layer(line, points).properties(width=640, height=320)
    named = " · ".join(filter(None, (subject, *source_lines_of(answer.rows))))
    return Picture(_KIND, _TITLE, _DEFINITION, data, chart, candidate_table(answer), named)
