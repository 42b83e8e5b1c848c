"""Text of ``kvsim explain --worst``: the spike in sentences, then the requests that waited longest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.report.explain.case import percent
from kvcache_sim.report.explain.worst import Window, arriving, ttft_ns, worst_table
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import Table, Value
from kvcache_sim.report.pictures.waterfall import PARTS
from kvcache_sim.report.plain_table import plain_sentences, plain_table

#: Multiple of the run's mean TTFT above which waiting belongs to a spike.
_TIMES = 2.0
_LEAST_REQUESTS = 3
#: Fewest arrivals from which a rate is stated.
_ENOUGH = 10
_MUCH = 1.5
#: Least difference in hit rate that is stated.
_POINTS = 0.1


@dataclass(frozen=True, slots=True)
class Spike:
    """Finished requests ``rows`` (indices into ``FinishedRun.finished``) that arrive one after another.

    ``part`` is the part of TTFT that grew most, against the requests outside.
    """

    rows: NDArray[np.int64]
    from_ns: int
    to_ns: int
    part: str


def find_spike(run: FinishedRun, window: Window | None = None) -> Spike | None:
    """Return the spike among requests that arrive in a window, or None where TTFT has none.

    The spike is the run of consecutive arrivals with the largest sum of TTFT beyond twice the run's mean
    (the maximum subarray, Bentley 1984, in one pass). Its own mean is over twice the run's. Fewer than three
    requests are no spike. Raises ``UsageError`` where no request arrives in the window.
    """
    rows = run.finished
    ttft = ttft_ns(rows)
    chosen = np.flatnonzero(arriving(run, window))
    chosen = chosen[np.lexsort((rows["request"][chosen], rows["arrival_ns"][chosen]))]
    beyond = np.concatenate([[0.0], np.cumsum(ttft[chosen] - _TIMES * float(ttft.mean()))])
    gain = beyond - np.minimum.accumulate(beyond)
    last = int(np.argmax(gain))
    first = int(np.argmin(beyond[: last + 1]))
    inside = chosen[first:last]
    if len(inside) < _LEAST_REQUESTS:
        return None
    arrival = rows["arrival_ns"][inside]
    part = max(PARTS, key=lambda part: _excess(rows[PARTS[part]], inside))
    return Spike(inside, int(arrival[0]), int(arrival[-1]), part)


def spike_sentences(run: FinishedRun, window: Window | None = None) -> list[str]:
    """Return the sentences on the spike, or the sentence that there is none."""
    spike = find_spike(run, window)
    where = "" if window is None else " among these requests"
    if spike is None:
        return [f"TTFT has no spike{where}: no consecutive arrivals wait {_TIMES:g} times the run's mean."]
    rows = run.finished
    ttft = ttft_ns(rows)
    mean_ms, usual_ms = float(ttft[spike.rows].mean()) / 1e6, float(ttft.mean()) / 1e6
    part, rest = rows[PARTS[spike.part]], _outside(len(rows["request"]), spike.rows)
    sentences = [
        f"TTFT spike{where}: {len(spike.rows):,} requests arriving from {spike.from_ns / 1e9:,.3f} s to "
        f"{spike.to_ns / 1e9:,.3f} s wait {format_time_ms(mean_ms)} on average, "
        f"{significant(mean_ms / usual_ms)} times the run's mean of {format_time_ms(usual_ms)}.",
        f"Largest growth: {spike.part}, {format_time_ms(_mean_ms(part, spike.rows))} on average against "
        f"{format_time_ms(_mean_ms(part, rest))} in the rest of the run.",
    ]
    return [*sentences, *_company(rows, spike, rest)]


def _company(rows: dict[str, NDArray[Any]], spike: Spike, rest: NDArray[np.int64]) -> list[str]:
    """Return sentences on load, hit rate and preemptions that differ during the spike."""
    worst_requests = []
    span_s = (spike.to_ns - spike.from_ns) / 1e9
    whole_s = float(rows["arrival_ns"].max() - rows["arrival_ns"].min()) / 1e9
    if len(spike.rows) >= _ENOUGH and 0 < span_s < whole_s and len(rest):
        inside = int(rows["input_tokens"][spike.rows].sum()) / span_s
        outside = int(rows["input_tokens"][rest].sum()) / (whole_s - span_s)
        if inside > _MUCH * outside:
            worst_requests.append(
                f"{inside:,.0f} prompt tokens/s arrive, against {outside:,.0f}/s in the rest of the run."
            )
    if len(rest):
        hits = [_hit_rate(rows, which) for which in (spike.rows, rest)]
        if hits[1] - hits[0] > _POINTS:
            worst_requests.append(
                f"{percent(hits[0])} of their prompt tokens are cached, against "
                f"{percent(hits[1])} in the rest of the run."
            )
    if preempted := int(rows["preemptions"][spike.rows].sum()):
        worst_requests.append(f"They are preempted {preempted:,} time{'s' * (preempted != 1)}.")
    heaviest = int(spike.rows[np.argmax(rows["num_tokens_actually_prefilled"][spike.rows])])
    worst_requests.append(
        f"Request {int(rows['request'][heaviest])} has the most to compute: "
        f"{int(rows['num_tokens_actually_prefilled'][heaviest]):,} tokens, arriving at "
        f"{float(rows['arrival_ns'][heaviest]) / 1e9:,.3f} s."
    )
    return worst_requests


def _outside(count: int, inside: NDArray[np.int64]) -> NDArray[np.int64]:
    mask = np.ones(count, bool)
    mask[inside] = False
    return np.flatnonzero(mask)


def _excess(column: NDArray[Any], inside: NDArray[np.int64]) -> float:
    return _mean_ms(column, inside) - _mean_ms(column, _outside(len(column), inside))


def _mean_ms(column: NDArray[Any], rows: NDArray[np.int64]) -> float:
    return float(column[rows].mean()) / 1e6 if len(rows) else 0.0


def _hit_rate(rows: dict[str, NDArray[Any]], which: NDArray[np.int64]) -> float:
    return int(rows["cached_prefix_length_used"][which].sum()) / max(
        1, int(rows["input_tokens"][which].sum())
    )


def worst_requests(run: FinishedRun, most: int, window: Window | None, output_format: str) -> str:
    """Return the spike and the ``most`` worst requests that arrive in a window, as text or JSON.

    Raises ``UsageError`` where no request arrives in the window.
    """
    sentences = spike_sentences(run, window)
    table = worst_table([run], most, window)
    shown_table = Table(table.headings[1:], tuple(row[1:] for row in table.rows))
    if output_format == "json":
        requests = [dict(zip(shown_table.headings, row, strict=True)) for row in shown_table.rows]
        return json.dumps({"spike": sentences, "worst": requests}, indent=2, ensure_ascii=False)
    shown = tuple(
        tuple(_cell(*pair) for pair in zip(shown_table.headings, row, strict=True))
        for row in shown_table.rows
    )
    return f"{plain_sentences(sentences)}\n\n{plain_table(Table(shown_table.headings, shown))}"


def _cell(heading: str, value: Value) -> Value:
    """Return a cell as text: times in three digits, with their unit from 100 s on, and counts in groups."""
    if heading in ("TTFT, ms", "ms of it") and isinstance(value, (int, float)):
        return format_time_ms(value) if value >= 99_999.5 else significant(value)
    return f"{value:,}" if heading in ("prompt tokens", "cached", "preemptions") else value
