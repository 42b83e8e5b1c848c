"""A log of real requests in the order of the trace; its format is detected from its content."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import InputOutputError, TraceError, UsageError
from kvcache_sim.report.request_log.formats import (
    LoggedRequest,
    read_aiperf,
    read_guidellm,
    read_serving_sim,
    read_sglang,
    read_vllm,
)

#: Match between a log's requests and the trace's: the log's own numbers, start times, or positions.
Pairing = Literal["request id", "start time", "position"]


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Latencies of real requests in seconds, one a request that finished; NaN where the log has none.

    TPOT is NaN for a single output token.
    """

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]
    #: Index in the trace of each, by ``pairing``.
    numbers: NDArray[np.int64]
    pairing: Pairing
    #: Requests that failed and are left out.
    failed: int = 0


_LOGS = "a file of requests that vLLM's or SGLang's benchmark, AIPerf, GuideLLM or LLMServingSim wrote"


def read_request_log(path: Path) -> RequestLog:
    """Return the requests of a log; see the formats' own files for what is read of each.

    Raises UsageError for a missing file, TraceError with the line for what cannot be read, and where two
    requests have one number.
    """
    return _log(logged_requests(path), path)


def logged_requests(path: Path) -> list[LoggedRequest]:
    """Return the requests of a log as they stand in it; raises as ``read_request_log``."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError("file not found", where=str(path)) from None
    except IsADirectoryError:
        raise UsageError("a folder, not the log of one run", where=str(path), expected=_LOGS) from None
    except UnicodeDecodeError:
        raise TraceError("not a text file", where=str(path), expected=_LOGS) from None
    except OSError as error:
        raise InputOutputError(f"cannot read: {error.strerror or error}", where=str(path)) from None
    reader = _reader(text)
    try:
        requests = list(reader(text, path))
    except (csv.Error, RecursionError) as error:
        raise TraceError(f"not a log: {error}", where=str(path), expected=_LOGS) from None
    for number, request in enumerate(requests, 1):
        _refuse_impossible(request, f"{path}: request {number}", has_ttft=reader is not read_sglang)
    return requests


def _refuse_impossible(request: LoggedRequest, where: str, has_ttft: bool) -> None:
    """Raise TraceError for a time or length that no request has; NaN: not logged."""
    if request.failed:
        return
    required = {"latency": request.e2e_s, "output tokens": request.output_tokens}
    optional = {"input tokens": request.input_tokens, "cached tokens": request.cached_tokens}
    (required if has_ttft else optional)["TTFT"] = request.ttft_s
    for name, value in (required | optional).items():
        if not (0 <= value < inf or (name in optional and isnan(value))):
            raise TraceError(f"no {name}", where=where, got=str(value), expected="a number from 0 on")


def _reader(text: str) -> Callable[[str, Path], Iterator[LoggedRequest]]:
    if not text.lstrip().startswith("{"):
        return read_serving_sim
    first = text.lstrip().split("\n", 1)[0]
    if '"request.received"' in first or '"request.finished"' in first:
        return read_sglang
    if '"benchmarks"' in text and '"time_to_first_token_ms"' in text:
        return read_guidellm
    statistics = any(name in text for name in ('"ttfts"', '"mean_ttft_ms"'))
    return read_vllm if statistics else read_aiperf


def _log(requests: list[LoggedRequest], path: Path) -> RequestLog:
    numbers, pairing = _numbers(requests)
    kept = [(n, r) for n, r in zip(numbers, requests, strict=True) if not r.failed]
    if not kept:
        raise TraceError("no finished requests", where=str(path))
    if len({n for n, _ in kept}) < len(kept):
        raise TraceError("two requests have one number", where=str(path))
    columns = np.array([(r.ttft_s, r.e2e_s, r.output_tokens) for _, r in kept], np.float64)
    ttft, e2e, output = columns.T
    many = output > 1
    tpot = np.where(many, (e2e - ttft) / np.where(many, output - 1, 1), np.nan)
    positions = np.array([n for n, _ in kept], np.int64)
    return RequestLog(ttft, tpot, e2e, positions, pairing, len(requests) - len(kept))


def _numbers(requests: list[LoggedRequest]) -> tuple[Iterable[int], Pairing]:
    """Return each request's index in the trace: named, or its rank by start, or its position."""
    if all(request.number is not None for request in requests):
        named = [request.number or 0 for request in requests]
        return named, "request id"
    if all(request.started_s is not None for request in requests):
        starts = np.array([request.started_s for request in requests])
        ranks = np.empty(len(requests), np.int64)
        ranks[np.argsort(starts, kind="stable")] = np.arange(len(requests))
        return ranks.tolist(), "start time"
    return range(len(requests)), "position"
