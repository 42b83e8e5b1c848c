"""Measured scheduler iterations: the rows a step-time model is fitted to and judged on."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError

#: Where a file gives only the spread of the KV lengths, the longest is taken as this many standard deviations
#: above the mean, or √(n−1) of them where that is less: more is not possible among n lengths.
LONGEST_DEVIATIONS = 4.0

_NEEDED = ("iter_ms",)
_NUMBERS = (
    "prefill_tokens",
    "prefill_requests",
    "prefill_past_kv_tokens",
    "decode_requests",
    "decode_kv_tokens",
    "decode_kv_std",
    "decode_kv_max",
    "tp",
)


@dataclass(frozen=True, slots=True)
class IterationRows:
    """Iterations in columns: what each computed (tokens, sequences), its time in ms, and its TP degree."""

    prefill_tokens: NDArray[np.float64]
    prefill_requests: NDArray[np.float64]
    past_tokens: NDArray[np.float64]
    decode_sequences: NDArray[np.float64]
    decode_kv_tokens: NDArray[np.float64]
    decode_max_kv_tokens: NDArray[np.float64]
    tensor_parallel: NDArray[np.float64]
    iter_ms: NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of iterations."""
        return len(self.iter_ms)

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> IterationRows:
        """Return the chosen rows."""
        return replace(self, **{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def phases(self) -> dict[str, NDArray[np.bool_]]:
        """Return the masks of decode, mixed and prefill steps."""
        prefill, decode = self.prefill_tokens > 0, self.decode_sequences > 0
        return {"decode": decode & ~prefill, "mixed": decode & prefill, "prefill": prefill & ~decode}


def read_iterations(path: Path, only: dict[str, str] | None = None) -> IterationRows:
    """Return the rows of a CSV (plain or gzip) of iterations, without those marked ``artefact``.

    ``iter_ms`` is needed; of the other columns (``prefill_tokens``, ``prefill_requests``,
    ``prefill_past_kv_tokens``, ``decode_requests``, ``decode_kv_tokens``, ``decode_kv_std`` or
    ``decode_kv_max``, ``tp``) an absent one counts as 0 (TP as 1). ``only`` keeps the rows with these values.
    Raises UsageError for a missing file, TraceError with file and line for a row that is not numbers,
    computes nothing, or has no positive time.
    """
    reader = csv.DictReader(io.StringIO(read_text(path)))
    names = reader.fieldnames or []
    for name in (*_NEEDED, *(only or ())):
        if name not in names:
            raise TraceError(f"no column {name}", where=f"{path}:1", got=", ".join(names) or "an empty file")
    columns: dict[str, list[float]] = {name: [] for name in (*_NUMBERS, "iter_ms")}
    for row in reader:
        if row.get("artefact") in ("1", "1.0") or any(row[k] != v for k, v in (only or {}).items()):
            continue
        for name, values in columns.items():
            values.append(number(row.get(name), name, f"{path}:{reader.line_num}"))
        _check_row(columns, f"{path}:{reader.line_num}")
    if not columns["iter_ms"]:
        raise TraceError("no iterations", where=str(path), hint="every row is an artefact or filtered out")
    return _to_rows({name: np.array(values) for name, values in columns.items()})


def column_values(path: Path, columns: tuple[str, ...], only: dict[str, str]) -> dict[str, set[str]]:
    """Return the values that each column takes in the rows chosen by ``only``; absent columns take none."""
    rows = [
        row
        for row in csv.DictReader(io.StringIO(read_text(path)))
        if all(row.get(key) == value for key, value in only.items())
    ]
    return {column: {row[column] for row in rows if row.get(column)} for column in columns}


def read_text(path: Path) -> str:
    """Return a file's text, unpacked when it is gzip; UsageError or TraceError when it cannot be."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError("file not found", where=str(path)) from None
    except IsADirectoryError:
        raise UsageError("not a file but a folder", where=str(path)) from None
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(f"not a CSV file: {error}", where=str(path)) from None


def number(text: str | None, name: str, where: str) -> float:
    """Return a finite number ≥ 0 (empty: 0, or 1 for ``tp``); TraceError naming ``where`` otherwise."""
    if text is None or text == "":
        return 1.0 if name == "tp" else 0.0
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise TraceError(f"{name} must be a number ≥ 0", where=where, got=repr(text))
    return value


def _check_row(columns: dict[str, list[float]], where: str) -> None:
    if columns["iter_ms"][-1] <= 0:
        raise TraceError("iter_ms must be above 0", where=where, got=str(columns["iter_ms"][-1]))
    if columns["prefill_tokens"][-1] + columns["decode_requests"][-1] <= 0:
        raise TraceError("an iteration that computes nothing", where=where)


def _to_rows(c: dict[str, NDArray[np.float64]]) -> IterationRows:
    n = c["decode_requests"]
    deviations = np.minimum(np.sqrt(np.maximum(n - 1, 0)), LONGEST_DEVIATIONS)
    mean = c["decode_kv_tokens"] / np.maximum(n, 1)
    longest = np.where(c["decode_kv_max"] > 0, c["decode_kv_max"], mean + c["decode_kv_std"] * deviations)
    return IterationRows(
        prefill_tokens=c["prefill_tokens"],
        prefill_requests=np.maximum(c["prefill_requests"], c["prefill_tokens"] > 0),
        past_tokens=c["prefill_past_kv_tokens"],
        decode_sequences=n,
        decode_kv_tokens=c["decode_kv_tokens"],
        decode_max_kv_tokens=np.where(n > 0, longest, 0.0),
        tensor_parallel=np.maximum(c["tp"], 1),
        iter_ms=c["iter_ms"],
    )
