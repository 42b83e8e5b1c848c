"""Scrapes of vLLM's or SGLang's ``/metrics`` as a load curve: each interval's rate and mean lengths.

Two forms are read: the text of consecutive scrapes, each after a line with its date (``date +%s;
curl …/metrics``), and Prometheus's answer to a range query (``/api/v1/query_range``) of
``{__name__=~"vllm:.*"}``. Lengths are those of vLLM's histograms, else its counters of all tokens over those
of finished requests; SGLang counts tokens of finished requests. Sources: vllm 0.33.0
``v1/metrics/loggers.py``, sglang 0.5.23 ``srt/observability/metrics_collector.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Imported, Notes
from kvcache_sim.workload.imports.source import amount_of, lines_of, problem
from kvcache_sim.workload.readers.dates import time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SAMPLE = re.compile(r"((?:vllm|sglang):\w+)(\{[^}]*\})? (\S+)(?: \d+)?\s*$")
_METRIC = re.compile(rb"\b(?:vllm|sglang):\w")
#: A comment on a metric, or a metric after a line that is a date.
_SIGN = re.compile(rb"^(?:# (?:TYPE|HELP) |[-#\d.T:+Z ]{9,40}\n)(?:vllm|sglang):\w", re.M)
_DATE = re.compile(r"#?\s*(?:scrape\s+)?(\d{9,19}(?:\.\d+)?|\d{4}-\d\d-\d\dT\S+)\s*$")


#: More requests than this in one interval are no count of them.
_MOST = 10_000_000


#: What is counted → the metrics that count it; the first that is scraped is used.
_METRICS = {
    "finished": ("vllm:request_success_total", "sglang:num_requests_total"),
    "prompts": ("vllm:request_prompt_tokens_sum", "vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "answers": (
        "vllm:request_generation_tokens_sum",
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
    ),
    "queries": ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "hits": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
}
_OPEN = (
    *("vllm:num_requests_running", "vllm:num_requests_waiting"),
    *("sglang:num_running_reqs", "sglang:num_queue_reqs"),
)
_WANTED = {*_OPEN, *(name for names in _METRICS.values() for name in names)}


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
    return bool(_SIGN.search(head)) or (b'"matrix"' in head and bool(_METRIC.search(head)))


def _read(source: TraceSource, reading: Reading) -> Requests:
    scrapes = list(_scrapes(source))
    if len(scrapes) < 2:
        raise problem(
            0, "a load curve needs two scrapes with their dates", len(scrapes), "date +%s before each"
        )
    for (start, _), (end, _) in pairwise(scrapes):
        if end <= start:
            raise problem(0, "scrapes out of order", f"{end} ns after {start} ns", "dates that grow")
    scraped = {series.name for scrape in scrapes for series in scrape.values}
    chosen = {what: next((n for n in names if n in scraped), "") for what, names in _METRICS.items()}
    if not chosen["finished"] or len({name.partition(":")[0] for name in scraped}) > 1:
        what, expected = "not the finished requests of one engine", " or ".join(_METRICS["finished"])
        raise problem(0, what, ", ".join(sorted(scraped)), expected)
    intervals = [_grown(before.values, after.values, reading.notes) for before, after in pairwise(scrapes)]
    sums = {what: sum(grown.get(name, 0.0) for grown in intervals) for what, name in chosen.items()}
    if not sums["finished"]:
        raise problem(0, "no request finished between the scrapes", "", "more time between them")
    spare = 0.0
    for (start, before), (end, after), grown in zip(scrapes[:-1], scrapes[1:], intervals, strict=True):
        grew = {what: grown.get(name, 0.0) for what, name in chosen.items()}
        came = grew["finished"] + _sum(after, _OPEN) - _sum(before, _OPEN) + spare
        requests = max(int(came + 0.5), 0)
        if requests > _MOST:
            raise problem(0, "too many requests between two scrapes", requests, f"at most {_MOST:,}")
        spare = came - requests
        mean = grew if grew["finished"] else sums  # nothing finished in between: the mean of all
        lengths = (mean[tokens] / max(mean["finished"], 1.0) for tokens in ("prompts", "answers"))
        inputs, outputs = (max(round(length), 1) for length in lengths)
        for k in range(requests):
            yield 0, Imported(start + (2 * k + 1) * (end - start) // (2 * requests), inputs, outputs, [])
    _remark(reading.notes, scrapes, chosen, sums)


def _remark(notes: Notes, scrapes: list[Scrape], chosen: dict[str, str], sums: dict[str, float]) -> None:
    seconds = (scrapes[-1].at_ns - scrapes[0].at_ns) / 1e9
    notes.remark(
        f"{len(scrapes)} scrapes over {seconds:,.0f} s; lengths are means of each interval, nothing is shared"
    )
    if missing := [what for what in ("prompts", "answers") if not chosen[what]]:
        notes.remark(f"lengths of {' and '.join(missing)} are not in the metrics: 1 token each")
    notes.remark("as a load curve: workload: {arrivals: {process: trace, path: THIS, bin: 60s}}")
    if sums["queries"] and chosen["hits"]:
        rate = sums["hits"] / sums["queries"]
        notes.remark(f"the engine's own prefix cache hit rate over this time: {rate:.1%}")


def _sum(values: Values, names: tuple[str, ...]) -> float:
    return sum(value for series, value in values.items() if series.name in names)


def _grown(before: Values, after: Values, notes: Notes) -> dict[str, float]:
    """Return the increase of each counter; a counter that fell was restarted, as in Prometheus."""
    grown = dict[str, float]()
    for series, value in after.items():
        if series.name not in _OPEN:
            was = before.get(series, 0.0)
            if value < was:
                notes.remark("a counter fell: the engine was started anew, and counts from 0 there")
                was = 0.0
            grown[series.name] = grown.get(series.name, 0.0) + value - was
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
        value = amount_of(float(text))
    except ValueError:
        value = None
    if value is None:
        raise problem(number, "not a value", text, "a number from 0 to 1e15")
    return value


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
                        dates.setdefault(date, {})[of] = _value(number, str(value))
    except (ValueError, KeyError, TypeError) as error:
        expected = "data.result: [{metric, values: [[date, value], …]}, …]"
        raise problem(number, "not an answer of Prometheus to a range query", repr(error), expected) from None
    yield from (Scrape(date, values) for date, values in sorted(dates.items()))


KIND = LogKind(
    "prometheus",
    "scrapes of vLLM's or SGLang's /metrics: a load curve for generated workloads",
    _detect,
    _read,
)
