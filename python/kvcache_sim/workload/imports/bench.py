"""Results of load generators that count tokens by request: ``vllm bench serve``, SGLang's bench, guidellm.

A result has arrays by request, or a list of objects; the tables say where each figure is. Sources: vllm
0.33.0 ``benchmarks/serve.py`` (``--save-result --save-detailed``), sglang 0.5.18 ``bench_serving``
(``--output-details``: a run a line), guidellm 0.8.1 ``benchmark/schemas/generative/benchmark.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.calls import at
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.naming import Imported
from kvcache_sim.workload.imports.source import amount_of, list_of, problem
from kvcache_sim.workload.prompts.body import count, member
from kvcache_sim.workload.readers.dates import time_ns
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

#: Figure → array by request of ``vllm bench serve`` and SGLang's ``bench_serving``.
_ARRAYS = dict(input="input_lens", output="output_lens", start="start_times", ttft_s="ttfts", error="errors")
#: Figure → paths in guidellm's ``benchmarks[].requests.successful[]``; the first that exists counts.
_PATHS = {
    "input": ("prompt_tokens", "input_metrics/text_tokens"),
    "output": ("output_tokens", "output_metrics/text_tokens"),
    "cached": ("input_metrics/cached_tokens", "cached_tokens"),
    "start": ("info/timings/request_start", "info/timings/targeted_start", "start_time"),
    "ttft_ms": ("time_to_first_token_ms",),
    "session": ("info/conversation_id",),
    "name": ("info/request_id", "request_id"),
}


def _detect(head: bytes) -> bool:
    guidellm = b'"benchmarks"' in head and (b'"guidellm_version"' in head or b'"successful"' in head)
    result = b'"total_input_tokens"' in head and b'"request_throughput"' in head
    return guidellm or result or (b'"input_lens"' in head and b'"output_lens"' in head)


def _read(source: TraceSource, reading: Reading) -> Requests:
    begin_ns = 0

    def take(number: int, value: Any) -> list[Imported | None]:
        nonlocal begin_ns
        runs, found = member(value, "benchmarks"), list[Imported | None]()
        for run in runs if isinstance(runs, list) else [value]:
            rows = list((_by_arrays if runs is None else _by_objects)(number, run, reading))
            starts = _starts(run, rows, begin_ns, reading)
            found += [_request(number, row, at_ns, reading) for row, at_ns in zip(rows, starts, strict=True)]
            begin_ns = max(begin_ns, *starts, 0) + round((amount_of(run.get("duration")) or 0) * NS_PER_S)
        return found

    # an element is long: it has the time of every token
    for number, found in each_line(source, reading, take, lambda log: objects(log, 1 << 30, strict=False)):
        yield from ((number, request) for request in found if request is not None)


def _by_arrays(number: int, run: Any, reading: Reading) -> Iterator[dict[str, Any]]:
    arrays = {figure: array for figure, name in _ARRAYS.items() if (array := member(run, name)) is not None}
    if not {"input", "output"} <= arrays.keys():
        what, options = (
            "a result of vllm bench serve or SGLang's bench",
            "--save-detailed or --output-details",
        )
        raise problem(number, f"{what} without its requests", run, f"input_lens, with {options}")
    if not all(isinstance(array, list) and len(array) == len(arrays["input"]) for array in arrays.values()):
        raise problem(number, "arrays of different lengths", ", ".join(arrays), "one entry a request each")
    for values in zip(*arrays.values(), strict=True):
        yield dict(zip(arrays, values, strict=True))


def _by_objects(number: int, run: Any, reading: Reading) -> Iterator[dict[str, Any]]:
    found = member(run, "requests")
    if not isinstance(member(found, "successful"), list):
        raise problem(number, "a benchmark of guidellm without its requests", run, "requests.successful")
    for kind in ("incomplete", "errored"):
        for _ in list_of(member(found, kind)):
            reading.notes.leave_out(number, f"{kind}, says guidellm")
    for request in found["successful"]:
        yield {figure: at(request, *paths) for figure, paths in _PATHS.items()}


def _starts(run: dict[str, Any], rows: list[dict[str, Any]], begin_ns: int, reading: Reading) -> list[int]:
    """Return the start of each request; without start times, requests come evenly at the run's rate."""
    found = [start for row in rows if (start := time_ns(row.get("start"))) is not None]
    if len(found) == len(rows):
        return found
    rate = amount_of(run.get("request_rate"))
    how = (
        f"evenly at request_rate, {rate:g} a second"
        if rate
        else "all at once, as no finite request_rate is given"
    )
    reading.notes.remark(f"no start times: arrivals are assumed, {how}")
    return [begin_ns + (round(k / rate * NS_PER_S) if rate else 0) for k in range(len(rows))]


def _request(number: int, row: dict[str, Any], start_ns: int, reading: Reading) -> Imported | None:
    inputs, outputs, cached = (count(row, name) for name in ("input", "output", "cached"))
    if row.get("error") or not outputs or not inputs:
        reading.notes.leave_out(number, "failed: an error, or no prompt or answer")
        return None
    measured = {} if cached is None else {"cached_tokens": float(cached)}
    if first_ms := amount_of(row.get("ttft_ms")) or 1000 * (amount_of(row.get("ttft_s")) or 0):
        measured["ttft_ms"] = round(first_ms, 3)
    session, alone = row.get("session"), row.get("name")
    session = reading.naming.session("" if session in (None, alone) else str(session))
    return Imported(start_ns, inputs, outputs, [], session=session, measured=measured)


KIND = LogKind("bench", "results of vllm bench serve, SGLang's bench_serving, guidellm", _detect, _read)
