"""Real per-request logs: AIPerf's JSON lines, vLLM's benchmark JSON, LLMServingSim's CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError

_TO_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Latencies of real requests in seconds, in the log's order; TPOT is NaN for a single output token."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]
    #: Requests that failed and are left out.
    failed: int = 0


def read_request_log(path: Path) -> RequestLog:
    """Return the requests of a log, its format told by its content.

    AIPerf ``profile_export.jsonl`` (``metrics.time_to_first_token``, ``request_latency``,
    ``output_sequence_length``, values with units); vLLM ``bench serve --save-detailed`` JSON (``ttfts``,
    ``itls`` in s); LLMServingSim CSV (``output``, ``latency``, ``TTFT`` in ns). Raises UsageError for a
    missing file, TraceError with the line for what cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError("file not found", where=str(path)) from None
    except (IsADirectoryError, UnicodeDecodeError):
        raise TraceError("not a text file", where=str(path)) from None
    if not text.lstrip().startswith("{"):
        rows = list(_serving_sim(text, path))
    elif '"ttfts"' in text:
        rows = list(_vllm(text, path))
    else:
        rows = list(_aiperf(text, path))
    kept = [row for row in rows if row is not None]
    if not kept:
        raise TraceError("no finished requests", where=str(path))
    ttft, e2e, output = np.array(kept, np.float64).T
    many = output > 1
    tpot = np.where(many, (e2e - ttft) / np.where(many, output - 1, 1), np.nan)
    return RequestLog(ttft, tpot, e2e, len(rows) - len(kept))


#: TTFT and E2E in s, and output tokens; None for a request that failed.
_Row = tuple[float, float, float] | None


def _serving_sim(text: str, path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(text.splitlines())
    for name in ("output", "latency", "TTFT"):
        if name not in (reader.fieldnames or ()):
            raise TraceError(
                f"no column {name}", where=f"{path}:1", hint="AIPerf, vLLM or LLMServingSim logs are read"
            )
    for row in reader:
        try:
            yield float(row["TTFT"]) / 1e9, float(row["latency"]) / 1e9, float(row["output"])
        except (TypeError, ValueError):
            raise TraceError("not a number", where=f"{path}:{reader.line_num}") from None


def _vllm(text: str, path: Path) -> Iterator[_Row]:
    try:
        log = json.loads(text)
        errors = log.get("errors") or [""] * len(log["ttfts"])
        # An event may bring several tokens, so gaps are counted only where the lengths are not written.
        tokens = log.get("output_lens") or [len(itl) + 1 for itl in log["itls"]]
        for ttft, itl, error, output in zip(log["ttfts"], log["itls"], errors, tokens, strict=True):
            yield None if error else (float(ttft), float(ttft) + sum(itl), float(output))
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"not a vLLM benchmark: {error}", where=str(path)) from None


def _aiperf(text: str, path: Path) -> Iterator[_Row]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            metrics = record.get("metrics") or {}
            if record.get("error") or "request_latency" not in metrics:
                yield None
                continue
            tokens = metrics.get("output_sequence_length") or metrics["output_token_count"]
            yield (
                _seconds(metrics["time_to_first_token"]),
                _seconds(metrics["request_latency"]),
                float(tokens["value"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"not an AIPerf record: {error}", where=f"{path}:{number}") from None


def _seconds(metric: dict[str, Any]) -> float:
    return float(metric["value"]) * _TO_S[metric["unit"]]
