"""Results of load generators that count tokens by request: ``vllm bench serve``, SGLang's bench, guidellm.

A result has arrays by request (``input_lens``, ``output_lens``, …), or a list of objects; a ``Layout`` says
where each figure is. Sources: vllm 0.33.0 ``benchmarks/serve.py`` (``--save-result --save-detailed``), sglang
0.5.18 ``bench_serving`` (``--output-details``: a run a line), guidellm 0.8.1
``benchmark/schemas/generative/benchmark.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Imported
from kvcache_sim.workload.imports.source import amount_of, count_of, json_values, member, problem, time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource


class Layout(NamedTuple):
    """Where a result has the figures of its requests; a path is of members, separated by dots."""

    name: str
    #: The option without which the result has no requests.
    details: str
    #: Figure → paths in a request; the first that exists counts.
    figures: Mapping[str, tuple[str, ...]]
    #: Path of the list of requests; "": the figures are arrays by request.
    requests: str = ""
    #: Paths of lists of failed requests.
    failed: tuple[str, ...] = ()


_ARRAYS = {
    "input": ("input_lens",),
    "output": ("output_lens",),
    "start": ("start_times",),
    "ttft_s": ("ttfts",),
    "error": ("errors",),
}
_VLLM = Layout("vllm bench serve", "--save-detailed", _ARRAYS)
_SGLANG = Layout("SGLang's bench_serving", "--output-details", _ARRAYS)
_GUIDELLM = Layout(
    "guidellm",
    "requests.successful",
    {
        "input": ("prompt_tokens", "input_metrics.text_tokens"),
        "output": ("output_tokens", "output_metrics.text_tokens"),
        "cached": ("input_metrics.cached_tokens", "cached_tokens"),
        "start": ("info.timings.request_start", "info.timings.targeted_start"),
        "ttft_ms": ("time_to_first_token_ms",),
        "session": ("info.conversation_id",),
        "name": ("info.request_id", "request_id"),
    },
    "requests.successful",
    ("requests.incomplete", "requests.errored"),
)


def _detect(head: bytes) -> bool:
    guidellm = b'"benchmarks"' in head and (b'"guidellm_version"' in head or b'"successful"' in head)
    result = b'"total_input_tokens"' in head and b'"request_throughput"' in head
    return guidellm or result or (b'"input_lens"' in head and b'"output_lens"' in head)


def _read(source: TraceSource, reading: Reading) -> Requests:
    begin_ns = 0
    for number, value in json_values(source):
        runs = member(value, "benchmarks")
        for run in runs if isinstance(runs, list) else [value]:
            if not isinstance(run, dict):
                raise problem(number, "not a result of a load generator", run, "an object")
            layout = _GUIDELLM if runs else _SGLANG if "total_output_tokens_retokenized" in run else _VLLM
            for path in layout.failed:
                for _ in _at(run, path) or []:
                    reading.notes.leave_out(number, f"{path.rpartition('.')[2]} by {layout.name}")
            rows = list(_rows(number, run, layout))
            starts = _starts(run, rows, begin_ns, reading)
            for row, start_ns in zip(rows, starts, strict=True):
                if (request := _request(number, row, start_ns, reading)) is not None:
                    yield number, request
            begin_ns = max((begin_ns, *starts)) + round((amount_of(run.get("duration")) or 0) * NS_PER_S)


def _at(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = member(row, name)
    return row


def _rows(number: int, run: dict[str, Any], layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield the figures of each request by name."""
    expected = f"requests, with {layout.details}"
    if layout.requests:
        found = _at(run, layout.requests)
        if not isinstance(found, list):
            raise problem(number, f"a result of {layout.name} without requests", found, expected)
        for request in found:
            values = {f: [_at(request, path) for path in paths] for f, paths in layout.figures.items()}
            yield {f: next((v for v in several if v is not None), None) for f, several in values.items()}
        return
    columns = {f: column for f, (path,) in layout.figures.items() if (column := run.get(path)) is not None}
    if not {"input", "output"} <= columns.keys():
        raise problem(number, f"a result of {layout.name} without requests", ", ".join(run), expected)
    if not all(isinstance(c, list) and len(c) == len(columns["input"]) for c in columns.values()):
        raise problem(number, "arrays of different lengths", ", ".join(columns), "one entry a request each")
    yield from (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def _starts(run: dict[str, Any], rows: list[dict[str, Any]], begin_ns: int, reading: Reading) -> list[int]:
    """Return the start of each request; without start times, requests come evenly at the run's rate."""
    found = [time_ns(row.get("start")) for row in rows]
    if None not in found:
        return [at for at in found if at is not None]
    rate = amount_of(run.get("request_rate"))
    how = (
        f"evenly at request_rate, {rate:g} a second" if rate else "all at once, as no request_rate says more"
    )
    reading.notes.remark(f"no start times: arrivals are assumed, {how}")
    return [begin_ns + (round(k / rate * NS_PER_S) if rate else 0) for k in range(len(rows))]


def _request(number: int, row: dict[str, Any], start_ns: int, reading: Reading) -> Imported | None:
    inputs, outputs, cached = (count_of(number, row, name) for name in ("input", "output", "cached"))
    if row.get("error") or not outputs:
        reading.notes.leave_out(number, "failed: an error, or no answer")
        return None
    if not inputs:
        reading.notes.leave_out(number, "no count of prompt tokens")
        return None
    measured = {} if cached is None else {"cached_tokens": float(cached)}
    first_ms = amount_of(row.get("ttft_ms")) or 1000 * (amount_of(row.get("ttft_s")) or 0)
    if first_ms:
        measured["ttft_ms"] = round(first_ms, 3)
    session = row.get("session")
    name = str(session) if session is not None and session != row.get("name") else ""
    return Imported(start_ns, inputs, outputs, [], 0, reading.naming.session(name), measured)


KIND = LogKind(
    "bench",
    "results of vllm bench serve, SGLang's bench_serving or guidellm, with details by request",
    _detect,
    _read,
)
