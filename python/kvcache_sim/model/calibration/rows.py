"""Measured scheduler iterations: the rows a step-time model is fitted to and judged on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError
from kvcache_sim.model.calibration.csv_table import CsvTable, read_table

#: Where a file gives only the spread of the KV lengths, the longest is taken as this many standard deviations
#: above the mean, or √(n−1) of them where that is less: more is not possible among n lengths.
LONGEST_DEVIATIONS = 4.0

_COUNTS = {
    "prefill_tokens": 0,
    "prefill_requests": 0,
    "prefill_past_kv_tokens": 0,
    "decode_requests": 0,
    "decode_kv_tokens": 0,
    "decode_kv_max": 0,
    "tp": 1,
}


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

    def twice_pairs(self, least_query_tokens: int) -> NDArray[np.float64]:
        """Return twice the products of a row's chunks with their keys, as ``StepTimeTable.pairs`` has them.

        Of several chunks in a step only sums are known; equal ones are assumed.
        """
        chunks = np.maximum(self.prefill_requests, 1)
        new, past = self.prefill_tokens / chunks, self.past_tokens / chunks
        return np.asarray(chunks * (2 * np.maximum(new, least_query_tokens) * past + new * new), np.float64)


def read_iterations(path: Path, only: dict[str, str] | None = None) -> IterationRows:
    """Return the rows of a CSV (plain or gzip) of iterations, without those marked ``artefact``.

    ``iter_ms`` is needed; of the other columns (``prefill_tokens``, ``prefill_requests``,
    ``prefill_past_kv_tokens``, ``decode_requests``, ``decode_kv_tokens``, ``decode_kv_std`` or
    ``decode_kv_max``, ``tp``) an absent one counts as 0 (TP as 1). ``only`` keeps the rows with these values.
    Raises UsageError for a missing file, TraceError with file and line for a row that is cut short, whose
    counts are no whole numbers, that computes nothing, or has no positive time.
    """
    table = read_table(path, ("iter_ms",), only or {})
    if "artefact" in table.cells:
        table = table.take(np.array([cell not in ("1", "1.0") for cell in table.cells["artefact"]], np.bool_))
    columns = {name: table.counts(name, default) for name, default in _COUNTS.items()}
    columns["decode_kv_std"] = table.numbers("decode_kv_std")
    columns["iter_ms"] = table.times("iter_ms")
    _check_rows(columns, table)
    if not len(table):
        raise TraceError("no iterations", where=str(path), hint="every row is an artefact or filtered out")
    return _to_rows(columns)


def _check_rows(columns: dict[str, NDArray[np.float64]], table: CsvTable) -> None:
    idle = columns["prefill_tokens"] + columns["decode_requests"] <= 0
    if idle.any():
        raise TraceError("an iteration that computes nothing", where=table.place(int(np.argmax(idle))))
    longest, total = columns["decode_kv_max"], columns["decode_kv_tokens"]
    most = longest * columns["decode_requests"]
    wrong = (longest > 0) & ~((longest <= total) & (total <= most))
    if wrong.any():
        row = int(np.argmax(wrong))
        expected = f"{longest[row]:.0f} to {most[row]:.0f}, by decode_kv_max and decode_requests"
        where = table.place(row)
        raise TraceError("decode_kv_tokens cannot be", where, got=f"{total[row]:.0f}", expected=expected)


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
