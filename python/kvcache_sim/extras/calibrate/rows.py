"""Measured scheduler iterations: fitted rows, held-out rows, and errors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.calibrate.csv_table import CsvTable, read_table
from kvcache_sim.model.step_time_file import PhaseError

#: If a file gives only the spread of the KV lengths, the longest is assumed to be this many standard
#: deviations above the mean, but at most √(n−1) of them: more is impossible for n lengths.
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
    """Iterations in columns: computed tokens and sequences, time in ms, and TP degree."""

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
        """Return the selected rows."""
        return replace(self, **{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def phases(self) -> dict[str, NDArray[np.bool_]]:
        """Return the masks of decode, mixed and prefill steps."""
        prefill, decode = self.prefill_tokens > 0, self.decode_sequences > 0
        return {"decode": decode & ~prefill, "mixed": decode & prefill, "prefill": prefill & ~decode}

    def twice_pairs(self, least_query_tokens: int) -> NDArray[np.float64]:
        """Return twice the products of a row's chunks with their keys, as in ``StepTimeTable.pairs``.

        Only sums are known of several chunks in a step; equal chunks are assumed.
        """
        chunks = np.maximum(self.prefill_requests, 1)
        new, past = self.prefill_tokens / chunks, self.past_tokens / chunks
        return np.asarray(chunks * (2 * np.maximum(new, least_query_tokens) * past + new * new), np.float64)


def read_iterations(path: Path, only: dict[str, str] | None = None) -> IterationRows:
    """Return the rows of a CSV (plain or gzip) of iterations, without rows marked ``artefact``.

    ``iter_ms`` is required; of the other columns (``prefill_tokens``, ``prefill_requests``,
    ``prefill_past_kv_tokens``, ``decode_requests``, ``decode_kv_tokens``, ``decode_kv_std`` or
    ``decode_kv_max``, ``tp``) an absent column counts as 0 (TP as 1). ``only`` keeps the rows with these
    values. Raises UsageError for a missing file, TraceError with file and line for a row that is cut short,
    has counts that are not whole numbers, computes nothing, or has no positive time.
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
        raise TraceError("an iteration that computes nothing", where=table.location(int(np.argmax(idle))))
    longest, total = columns["decode_kv_max"], columns["decode_kv_tokens"]
    most = longest * columns["decode_requests"]
    wrong = (longest > 0) & ~((longest <= total) & (total <= most))
    if wrong.any():
        row = int(np.argmax(wrong))
        expected = f"{longest[row]:.0f} to {most[row]:.0f}, by decode_kv_max and decode_requests"
        where = table.location(row)
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


def phase_errors(rows: IterationRows, predicted_ms: NDArray[np.float64]) -> list[PhaseError]:
    """Return the errors of each phase that has rows (percentile: linear interpolation)."""
    error = 100 * (predicted_ms / rows.iter_ms - 1)
    return [
        PhaseError(
            phase,
            int(mask.sum()),
            float(np.abs(error[mask]).mean()),
            float(np.percentile(np.abs(error[mask]), 95)),
            float(error[mask].mean()),
        )
        for phase, mask in rows.phases().items()
        if mask.any()
    ]


#: The only files that a shipped set is fitted to: kernel and iteration timings. No end-to-end run is among
#: them; these are for validation. Of the file of ``benches/measured`` the sweep alone is fitted.
TRAIN_FILES = (
    "attention_skew_rtx.csv.gz",
    "h100-llama-3.1-8b-iterations.csv.gz",
    "iter_b300_moe.csv.gz",
    "iter_b300_qwen3_32b.csv",
    "iter_composed_a100_h100.csv",
    "kernels_rtx.csv.gz",
)

#: The seed and the held-out share of every shipped set.
SPLIT_SEED = 20261121
HELD_OUT_SHARE = 0.2
#: If neighboring rows of a file are similar, contiguous blocks are held out too: their number, and the share
#: of each.
BLOCKS = 50
BLOCKS_HELD_OUT = 5


def scipy_optimize() -> Any:
    """Return scipy's optimizers; UsageError if scipy is not installed."""
    try:
        from scipy import optimize
    except ModuleNotFoundError:
        raise UsageError("fitting needs scipy", hint="pip install 'kvcache-sim[calibrate]'") from None
    return optimize


def check_train_file(name: str) -> None:
    """Raise UsageError if a file is not on the train list."""
    if name not in TRAIN_FILES:
        raise UsageError(
            "not a file of the train split", got=name, expected="one of " + ", ".join(TRAIN_FILES)
        )


def held_out(rows: int, share: float = HELD_OUT_SHARE) -> NDArray[np.bool_]:
    """Return the mask of held-out rows: each with probability ``share``, by its index alone."""
    return stream(SPLIT_SEED, "calibration.held-out").random(rows) < share


def held_out_blocks(rows: int) -> NDArray[np.bool_]:
    """Return the mask of five of fifty contiguous blocks of a file of ``rows`` rows."""
    chosen = stream(SPLIT_SEED, "calibration.held-out-blocks").choice(BLOCKS, BLOCKS_HELD_OUT, replace=False)
    return np.isin(np.arange(rows) * BLOCKS // max(rows, 1), chosen)
