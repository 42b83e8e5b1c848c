"""A source of step times as a prior: its parts, scaled to measured iterations, one scale a part and phase.

Pure decode steps and steps with a prefill chunk are corrected apart: ``T = constant + a·base + b·KV + c·pairs
+ d·n`` with scales ≥ 0 that are drawn towards the source's own (constant and d to 0, the others to 1), so
that few rows move little. A correction fitted to one deployment serves another of the same source's kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.calibration.choice import fit_best, spread_rows
from kvcache_sim.model.calibration.fit import chunk_base_ns, predict_ms
from kvcache_sim.model.calibration.rows import IterationRows, phase_errors
from kvcache_sim.model.parametric import ParametricStepTime, six_digits
from kvcache_sim.model.step_time import StepTime, StepTimeTable

#: Numbers of rows at which errors with and without the source are shown.
CURVE_ROWS = (0, 10, 30, 100, 300)
_SIZE = 16_384
_SEQUENCES = 512
#: How far, in steps' relative errors, a scale may lie from the source's before it counts as one row off.
_SCALE_DEVIATION = 0.5
_ROW_DEVIATION = 0.05
_ROUNDS = 20
_POINTS = (1, 2, 4, *range(8, 64, 8), *range(64, 512, 32), 512, 513, 768, *range(1024, 4096, 512))
_FAR_POINTS = (*range(4096, _SIZE + 1, 2048),)


#: By number of rows and phase: the MAPE in % with the source, and without it (None: too few rows).
ErrorCurve = dict[int, dict[str, tuple[float, float | None]]]


@dataclass(frozen=True, slots=True)
class Correction:
    """The scales of decode steps (constant, base, KV, sequences) and of others (the same, then pairs)."""

    decode: tuple[float, ...] = (0.0, 1.0, 1.0, 0.0)
    chunked: tuple[float, ...] = (0.0, 1.0, 1.0, 0.0, 1.0)

    def apply(self, source: StepTime) -> ParametricStepTime:
        """Return a source with its parts scaled; spreads and tiles stay as they are."""
        table = _table(source)
        decode, chunked = self.decode, self.chunked
        points = sorted({*_POINTS, *_FAR_POINTS})
        on_decode, on_chunked = _usual(table)
        sequences = [n for n in points if n <= _SEQUENCES]
        decode_ms = decode[0] * on_decode + decode[1] * table.decode_base_ns[sequences] / 1e6
        base_ms = chunked[0] * on_chunked + chunked[1] * table.base_ns[points] / 1e6
        past_ns = table.past_base_ns[points] if len(table.past_base_ns) else np.zeros(0)
        past_ms = chunked[0] * on_chunked + chunked[1] * past_ns / 1e6
        kv, kv_mixed = decode[2] * table.kv_decode_fs / 1e9, chunked[2] * table.kv_mixed_fs / 1e9
        own = table.sequence_fs / 1e12
        one = decode[1] * own + decode[3] * on_decode / 100
        one_mixed = chunked[1] * own + chunked[3] * on_chunked / 100
        return ParametricStepTime(
            base_points=_rising(points, base_ms),
            decode_points=_rising(sequences, decode_ms),
            past_points=_rising(points[: len(past_ms)], past_ms),
            beside_ms=six_digits(chunked[1] * table.beside_fs / 1e12),
            pairs_ms_per_million=six_digits(2 * chunked[4] * table.pair_half_fs / 1e6),
            past_ms_per_thousand=six_digits(chunked[4] * table.past_fs / 1e9),
            scan_ms_per_thousand=six_digits(chunked[4] * table.scan_fs / 1e9),
            kv_ms_per_thousand=six_digits(kv),
            kv_mixed_ms_per_thousand=six_digits(max(kv_mixed, kv)),
            sequence_ms=six_digits(one),
            sequence_mixed_ms=six_digits(max(one_mixed, one)),
            idle_ms_per_million=six_digits(chunked[4] * table.idle_fs / 1e6),
            spread=_share(table.spread_decode_fs, table.kv_decode_fs),
            spread_mixed=_share(table.spread_mixed_fs, table.kv_mixed_fs),
            least_kv_tokens=table.least_kv_tokens,
            least_query_tokens=table.least_query_tokens,
            graph_tokens=0,
        )


def fit_correction(source: StepTime, rows: IterationRows) -> Correction:
    """Return the scales that bring a source nearest to rows, robustly, and never below 0 (needs scipy)."""
    table = _table(source)
    on_decode, on_chunked = _usual(table)
    tokens = (rows.prefill_tokens + rows.decode_sequences).astype(np.intp)
    n = rows.decode_sequences
    if tokens.max(initial=0) > _SIZE or n.max(initial=0) > _SEQUENCES:
        raise UsageError(f"steps of more than {_SIZE} tokens or {_SEQUENCES} sequences")
    mixed = rows.prefill_tokens > 0
    one, own = np.ones(len(rows)), table.sequence_fs * n / 1e12
    kv_tokens = np.maximum(rows.decode_kv_tokens, table.least_kv_tokens * n)
    chunk_ms = chunk_base_ns(table, tokens, rows) / 1e6 + table.beside_fs * (n > 0) / 1e12
    base = np.where(mixed, chunk_ms, table.decode_base_ns[n.astype(np.intp)] / 1e6) + own
    kv = np.where(mixed, table.kv_mixed_fs, table.kv_decode_fs) * kv_tokens / 1e12
    pairs = rows.twice_pairs(table.least_query_tokens) * table.pair_half_fs
    pairs += table.past_fs * rows.past_tokens + table.idle_fs * n * rows.prefill_tokens
    pairs /= 1e12
    decode = _scales(
        np.stack((one * on_decode, base, kv, n * on_decode / 100), 1)[~mixed], rows.iter_ms[~mixed]
    )
    columns = np.stack((one * on_chunked, base, kv, n * on_chunked / 100, pairs), 1)
    return Correction(decode, _scales(columns[mixed], rows.iter_ms[mixed]))


def _scales(columns: NDArray[np.float64], ms: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the non-negative scales of one phase; with no rows the source's own."""
    from scipy.optimize import nnls

    prior = np.array([0.0, 1.0, 1.0, 0.0, 1.0][: columns.shape[1]])
    pull = np.eye(len(prior)) * (_ROW_DEVIATION / _SCALE_DEVIATION)
    matrix, weight = columns / np.maximum(ms, 1e-9)[:, None], np.ones(len(ms))
    found = prior
    for _ in range(_ROUNDS if len(ms) else 0):
        stacked = np.vstack((matrix * weight[:, None], pull))
        found = nnls(stacked, np.concatenate((weight, pull @ prior)), maxiter=1000)[0]
        weight = (1 + ((matrix @ found - 1) / _ROW_DEVIATION) ** 2) ** -0.25
    return tuple(six_digits(scale) for scale in found.tolist())


def error_curve(source: StepTime, rows: IterationRows, out: NDArray[np.bool_]) -> ErrorCurve:
    """Return, by number of rows and phase, the MAPE in % on held-out rows with the source and without it.

    Without the source no rows, or fewer than ten, give nothing: None.
    """
    unseen = rows.take(out)
    curve: ErrorCurve = {}
    for count in CURVE_ROWS:
        few = rows.take(spread_rows(rows, ~out, count))
        with_source = _mape(fit_correction(source, few).apply(source), unseen)
        alone = _mape(fit_best(few).model, unseen) if count >= 10 else {}
        curve[count] = {phase: (mape, alone.get(phase)) for phase, mape in with_source.items()}
    return curve


def _mape(model: StepTime, rows: IterationRows) -> dict[str, float]:
    return {error.phase: error.mape for error in phase_errors(rows, predict_ms(model, rows))}


def _table(source: StepTime) -> StepTimeTable:
    table = source.table(_SIZE, _SEQUENCES)
    if len(table.longest_fs) and table.longest_fs.any():
        table = replace(table, longest_fs=np.zeros(0, np.int64))
    sequences_ns = table.sequence_fs * np.arange(len(table.decode_base_ns)) // 1_000_000
    return replace(
        table,
        base_ns=_never_falling(table.base_ns),
        past_base_ns=_never_falling(table.past_base_ns),
        decode_base_ns=_never_falling(table.decode_base_ns + sequences_ns) - sequences_ns,
    )


def _never_falling(base_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the middle of a base's envelopes that never fall, above and below: a set's bases do not."""
    above = np.maximum.accumulate(base_ns)
    below = np.minimum.accumulate(base_ns[::-1])[::-1]
    return np.asarray((above + below) // 2, np.int64)


def _share(spread_fs: int, kv_fs: int) -> float:
    """Return what a spread is of the KV's own cost, at most all of it."""
    return six_digits(min(spread_fs / kv_fs, 1.0)) if kv_fs else 0.0


def _usual(table: StepTimeTable) -> tuple[float, float]:
    """Return the ms of a small decode step and of a small prompt: what constants are counted in."""
    return float(table.decode_base_ns[1]) / 1e6, float(table.base_ns[128]) / 1e6


def _rising(counts: list[int], ms: NDArray[np.floating[Any]]) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(n), six_digits(y)) for n, y in zip(counts, np.maximum.accumulate(ms).tolist(), strict=True)
    )
