"""A real request, and logs of them by their format: vLLM, SGLang, AIPerf, GuideLLM and LLMServingSim."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import TraceError


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request as a client or an engine logged it; NaN for a time that the log does not have.

    ``number`` is its index in the trace where the log names it; ``started_s`` orders requests that have
    start times only. With neither, the log is in the order of the trace. A ``failed`` request keeps its
    position in that order and has no latencies.
    """

    ttft_s: float = float("nan")
    e2e_s: float = float("nan")
    output_tokens: float = 0
    number: int | None = None
    started_s: float | None = None
    failed: bool = False
    #: Prompt tokens, and those of them that a cache served; NaN where the log does not say.
    input_tokens: float = float("nan")
    cached_tokens: float = float("nan")


def read_vllm(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests of a run of vLLM's or SGLang's benchmark, with its lists by request.

    Raises TraceError where lists are missing or do not belong together, and for several runs.
    """
    try:
        log, end = json.JSONDecoder().raw_decode(text.strip())
        if more := text.strip()[end:].strip():
            runs = f"{1 + len(more.splitlines())} runs"
            raise TraceError("several runs", str(path), got=runs, expected="a file of one run")
        if "ttfts" not in log:
            hint = "run vLLM's benchmark with --save-detailed, SGLang's with --output-details"
            raise TraceError("no requests, only a run's statistics", str(path), hint=hint)
        errors = log.get("errors") or [""] * len(log["ttfts"])
        # An event may bring several tokens, so gaps are counted only where the lengths are not written.
        tokens = log.get("output_lens") or [len(itl) + 1 for itl in log["itls"]]
        starts = log.get("start_times") or [None] * len(log["ttfts"])
        prompts = log.get("input_lens") or ["nan"] * len(log["ttfts"])
        hits = log.get("cached_tokens") or ["nan"] * len(log["ttfts"])
        rows = zip(log["ttfts"], log["itls"], errors, tokens, starts, prompts, hits, strict=True)
        for number, (ttft, itl, error, output, start, prompt, cached) in enumerate(rows):
            if error:
                yield LoggedRequest(number=number, failed=True)
                continue
            yield LoggedRequest(
                float(ttft),
                float(ttft) + sum(itl),
                float(output),
                number,
                None if start is None else float(start),
                input_tokens=float(prompt),
                cached_tokens=float(cached),
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"not a benchmark of vLLM or SGLang: {error}", where=str(path)) from None


def read_sglang(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests in the order they were received; the log has no TTFT.

    A request that never finished counts as failed. Raises TraceError with the line of an invalid event.
    """
    received: dict[str, LoggedRequest] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            kind = event["event"]
            if kind == "request.received":
                received.setdefault(event["rid"], LoggedRequest(failed=True))
            elif kind == "request.finished":
                received[event["rid"]] = _finished(event["out"]["meta_info"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"not an SGLang log: {error}", where=f"{path}:{number}") from None
    yield from received.values()


def _finished(meta: dict[str, Any]) -> LoggedRequest:
    if (meta.get("finish_reason") or {}).get("type") == "abort":
        return LoggedRequest(failed=True)
    return LoggedRequest(
        e2e_s=float(meta["e2e_latency"]),
        output_tokens=float(meta["completion_tokens"]),
        input_tokens=float(meta.get("prompt_tokens", "nan")),
        cached_tokens=float(meta.get("cached_tokens", "nan")),
    )


_UNKNOWN = {"value": "nan"}
_TO_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def read_aiperf(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests; they are paired by ``metadata.request_start_ns``, where records have it.

    Raises TraceError with the line of an invalid record.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            metrics = record.get("metrics") or {}
            start_ns = (record.get("metadata") or {}).get("request_start_ns")
            started_s = None if start_ns is None else int(start_ns) / 1e9
            if record.get("error") or "request_latency" not in metrics:
                yield LoggedRequest(started_s=started_s, failed=True)
                continue
            tokens = metrics.get("output_sequence_length") or metrics["output_token_count"]
            yield LoggedRequest(
                ttft_s=_seconds(metrics["time_to_first_token"]),
                e2e_s=_seconds(metrics["request_latency"]),
                output_tokens=float(tokens["value"]),
                started_s=started_s,
                input_tokens=float((metrics.get("input_sequence_length") or _UNKNOWN)["value"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"not an AIPerf record: {error}", where=f"{path}:{number}") from None


def _seconds(metric: dict[str, Any]) -> float:
    return float(metric["value"]) * _TO_S[metric["unit"]]


def read_guidellm(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests of a report with one benchmark; raises TraceError for another one.

    ``requests`` has lists ``successful``, ``incomplete`` and ``errored`` (GuideLLM 0.8); what did not
    succeed counts as failed.
    """
    try:
        benchmarks = json.loads(text)["benchmarks"]
        if len(benchmarks) != 1:
            raise TraceError("one benchmark a file", where=str(path), got=f"{len(benchmarks)} benchmarks")
        for kind, requests in benchmarks[0]["requests"].items():
            for request in requests or ():
                yield _request(request, kind)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"not a GuideLLM report: {error}", where=str(path)) from None


def _request(request: dict[str, Any], kind: str) -> LoggedRequest:
    timings = (request.get("info") or {}).get("timings") or {}
    started = timings.get("request_start")
    started_s = None if started is None else float(started)
    if kind != "successful":
        return LoggedRequest(started_s=started_s, failed=True)
    return LoggedRequest(
        ttft_s=float(request["time_to_first_token_ms"]) / 1e3,
        e2e_s=float(request["request_latency"]),
        output_tokens=float(request["output_tokens"]),
        started_s=started_s,
        input_tokens=float(request.get("prompt_tokens") or "nan"),
    )


def read_serving_sim(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests, paired by ``request id``; times in ns. Raises TraceError with the line.

    ``arrival``, ``input`` and ``cached`` (prompt tokens, and those that a cache served) are read where given.
    """
    reader = csv.DictReader(text.splitlines())
    for name in ("request id", "output", "latency", "TTFT"):
        if name not in (reader.fieldnames or ()):
            known = "AIPerf, vLLM, GuideLLM, SGLang and LLMServingSim logs are read"
            raise TraceError(f"no column {name}", where=f"{path}:1", hint=known)
    for row in reader:
        try:
            yield LoggedRequest(
                ttft_s=float(row["TTFT"]) / 1e9,
                e2e_s=float(row["latency"]) / 1e9,
                output_tokens=float(row["output"]),
                number=int(row["request id"]),
                started_s=float(row["arrival"]) / 1e9 if row.get("arrival") else None,
                input_tokens=float(row.get("input") or "nan"),
                cached_tokens=float(row.get("cached") or "nan"),
            )
        except (TypeError, ValueError):
            raise TraceError("not a number", where=f"{path}:{reader.line_num}") from None
