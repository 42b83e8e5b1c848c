"""Scrapes of vLLM's ``/metrics`` as a load curve: each interval's rate and mean lengths.

Two forms are read: the text of consecutive scrapes, each after a line with its date (``date +%s;
curl …/metrics``), and Prometheus's answer to a range query (``/api/v1/query_range``) of
``{__name__=~"vllm:.*"}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Imported, Notes
from kvcache_sim.workload.imports.source import lines_of, problem, time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SAMPLE = re.compile(r"(vllm:\w+)(\{[^}]*\})? (\S+)(?: \d+)?\s*$")
_DATE = re.compile(r"#?\s*(?:scrape\s+)?(\d{9,19}(?:\.\d+)?|\d{4}-\d\d-\d\dT\S+)\s*$")
_FINISHED = "vllm:request_success_total"
_PROMPT, _ANSWER = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"
_OPEN = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_QUERIES, _HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
_COUNTED = (_FINISHED, f"{_PROMPT}_sum", f"{_ANSWER}_sum", f"{_PROMPT}_count", _QUERIES, _HITS)
_WANTED = {*_COUNTED, *_OPEN}


class Series(NamedTuple):
    """A series of values: the metric's name, and its labels as text."""

    name: str
    labels: str


Values = dict[Series, float]


class Scrape(NamedTuple):
    """The value of each series at one date."""

    at_ns: int
    values: Values


def _detect(head: bytes) -> bool:
    return b"vllm:" in head and (b"# TYPE vllm:" in head or b"# HELP vllm:" in head or b'"matrix"' in head)


def _read(source: TraceSource, reading: Reading) -> Requests:
    scrapes = list(_scrapes(source))
    if len(scrapes) < 2:
        raise problem(
            0, "a load curve needs two scrapes with their dates", len(scrapes), "date +%s before each"
        )
    notes, spare, sums = reading.notes, 0.0, dict.fromkeys(_COUNTED, 0.0)
    for (start, before), (end, after) in pairwise(scrapes):
        if end <= start:
            raise problem(0, "scrapes out of order", f"{end} ns after {start} ns", "dates that grow")
        grown = _grown(before, after, notes)
        for name, value in grown.items():
            sums[name] += value
        came = grown[_FINISHED] + _sum(after, _OPEN) - _sum(before, _OPEN) + spare
        requests = max(int(came + 0.5), 0)
        spare = came - requests
        finished = max(grown[f"{_PROMPT}_count"], 1.0)
        inputs, outputs = (max(round(grown[f"{name}_sum"] / finished), 1) for name in (_PROMPT, _ANSWER))
        for k in range(requests):
            yield 0, Imported(start + (2 * k + 1) * (end - start) // (2 * requests), inputs, outputs, [])
    _remark(notes, scrapes, sums)


def _remark(notes: Notes, scrapes: list[Scrape], sums: dict[str, float]) -> None:
    seconds = (scrapes[-1].at_ns - scrapes[0].at_ns) / 1e9
    notes.remark(
        f"{len(scrapes)} scrapes over {seconds:,.0f} s; lengths are means of each interval, nothing is shared"
    )
    notes.remark("as a load curve: workload: {arrivals: {process: trace, path: THIS, bin: 60s}}")
    if sums[_QUERIES]:
        rate = sums[_HITS] / sums[_QUERIES]
        notes.remark(f"the engine's own prefix cache hit rate over this time: {rate:.1%}")


def _sum(values: Values, names: tuple[str, ...]) -> float:
    return sum(value for series, value in values.items() if series.name in names)


def _grown(before: Values, after: Values, notes: Notes) -> dict[str, float]:
    """Return the increase of each counter; a counter that fell was restarted, as in Prometheus."""
    grown = dict.fromkeys(_COUNTED, 0.0)
    for series, value in after.items():
        if series.name in grown:
            was = before.get(series, 0.0)
            if value < was:
                notes.remark("a counter fell: the engine was started anew, and counts from 0 there")
                was = 0.0
            grown[series.name] += value - was
    return grown


def _scrapes(source: TraceSource) -> Iterator[Scrape]:
    date, known = None, False
    values: Values = {}
    lines = lines_of(source)
    for number, text in lines:
        if date is None and text.lstrip().startswith("{"):
            yield from _matrix(number, text + "".join(rest for _, rest in lines))
            return
        if found := _DATE.match(text):
            if date is not None:
                yield Scrape(date, values)
            date, values = time_ns(found[1]), {}
        elif sample := _SAMPLE.match(text):
            known = True
            if date is None:
                raise problem(
                    number, "a scrape without a date", text, "a line with its date before it (date +%s)"
                )
            if sample[1] in _WANTED:
                values[Series(sample[1], sample[2] or "")] = _value(number, sample[3])
    if date is not None and known:
        yield Scrape(date, values)


def _value(number: int, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise problem(number, "not a value", text, "a number") from None


def _matrix(number: int, text: str) -> Iterator[Scrape]:
    try:
        found = json.loads(text)
        series: list[dict[str, Any]] = found["data"]["result"]
        dates: dict[int, Values] = {}
        for each in series:
            labels = dict(each["metric"])
            name = labels.pop("__name__")
            if name in _WANTED:
                for at, value in each["values"]:
                    date = time_ns(at)
                    if date is not None:
                        of = Series(name, json.dumps(labels, sort_keys=True))
                        dates.setdefault(date, {})[of] = float(value)
    except (ValueError, KeyError, TypeError) as error:
        expected = "data.result: [{metric, values: [[date, value], …]}, …]"
        raise problem(number, "not an answer of Prometheus to a range query", repr(error), expected) from None
    yield from (Scrape(date, values) for date, values in sorted(dates.items()))


KIND = LogKind(
    "prometheus", "scrapes of vLLM's /metrics: a load curve for generated workloads", _detect, _read
)
