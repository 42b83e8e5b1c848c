"""The fits of ``kvsim calibrate``: one file's rows, split into fitted and held-out rows.

A source of step times is a prior: its parts are scaled to measured iterations, one scale per part and phase.
Pure decode steps and steps with a prefill chunk are corrected separately: ``T = constant + a·base + b·KV +
c·pairs + d·n`` with scales ≥ 0 that are regularized towards the source's own (constant and d to 0, the
others to 1), so that few rows change little. A correction of one deployment applies to another deployment of
the same kind of source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.extras.calibrate.choice import fit_best, spread_rows
from kvcache_sim.extras.calibrate.csv_table import column_values, read_table
from kvcache_sim.extras.calibrate.fit import chunk_base_ns, fit_runs, fit_step_time, predict_ms
from kvcache_sim.extras.calibrate.kernels import (
    read_kernels,
    with_all_reduces,
    with_experts,
    with_shared_apart,
    with_spreads,
)
from kvcache_sim.extras.calibrate.rows import IterationRows, held_out, phase_errors, read_iterations
from kvcache_sim.extras.calibrate.runs import SEEN_COLUMN, Runs, compiles, runs_of, seen_late, single_steps
from kvcache_sim.extras.calibrate.transfer import fit_tensor_parallel
from kvcache_sim.extras.calibrate.unsplit_kv import with_unsplit_kv
from kvcache_sim.model.gpus import UNMEASURED, load_gpu
from kvcache_sim.model.kv_capacity import kv_capacity_bytes
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime, six_digits
from kvcache_sim.model.points import Point, Points
from kvcache_sim.model.rank_work import Degrees
from kvcache_sim.model.step_time import StepTime, StepTimeTable
from kvcache_sim.model.step_time_file import Provenance, model_text
from kvcache_sim.model.step_times import load_step_time, measured_on, step_time_entry

#: Numbers of rows at which errors with and without the source are reported.
CURVE_ROWS = (0, 10, 30, 100, 300)
_SIZE = 16_384
_SEQUENCES = 512
#: Deviation of a scale from the source's, in relative step errors, that counts as much as one wrong row.
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
        """Return a source with its parts scaled; spreads and tiles are unchanged."""
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
        sequence_ms = table.sequence_fs / 1e12
        one = decode[1] * sequence_ms + decode[3] * on_decode / 100
        one_mixed = chunked[1] * sequence_ms + chunked[3] * on_chunked / 100
        return ParametricStepTime(
            base_points=_rising(points, base_ms),
            decode_points=_rising(sequences, decode_ms),
            past_points=_rising(points[: len(past_ms)], past_ms),
            beside_ms=six_digits(chunked[1] * table.alongside_fs / 1e12),
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
            unsplit_sequences=table.unsplit_sequences,
            unsplit_ms_per_thousand=six_digits(decode[2] * table.unsplit_fs / 1e9),
            unsplit_hidden=six_digits(table.unsplit_hidden_fs / max(table.unsplit_fs, 1)),
            least_kv_tokens=table.least_kv_tokens,
            least_query_tokens=table.least_query_tokens,
            graph_tokens=0,
        )


def fit_correction(source: StepTime, rows: IterationRows) -> Correction:
    """Return the scales that fit a source to rows, robustly, and never below 0 (needs scipy)."""
    table = _table(source)
    on_decode, on_chunked = _usual(table)
    tokens = (rows.prefill_tokens + rows.decode_sequences).astype(np.intp)
    n = rows.decode_sequences
    if tokens.max(initial=0) > _SIZE or n.max(initial=0) > _SEQUENCES:
        raise UsageError(f"steps of more than {_SIZE} tokens or {_SEQUENCES} sequences")
    mixed = rows.prefill_tokens > 0
    one, sequences_ms = np.ones(len(rows)), table.sequence_fs * n / 1e12
    kv_tokens = np.maximum(rows.decode_kv_tokens, table.least_kv_tokens * n)
    chunk_ms = chunk_base_ns(table, tokens, rows) / 1e6 + table.alongside_fs * (n > 0) / 1e12
    base = np.where(mixed, chunk_ms, table.decode_base_ns[n.astype(np.intp)] / 1e6) + sequences_ms
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
    """Return the non-negative scales of one phase; without rows the source's own."""
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

    Without the source, fewer than ten rows give None.
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
    """Return the middle of a base's non-decreasing envelopes, above and below: a set's bases never fall."""
    above = np.maximum.accumulate(base_ns)
    below = np.minimum.accumulate(base_ns[::-1])[::-1]
    return np.asarray((above + below) // 2, np.int64)


def _share(spread_fs: int, kv_fs: int) -> float:
    """Return a spread as a share of the KV's own cost, at most 1."""
    return six_digits(min(spread_fs / kv_fs, 1.0)) if kv_fs else 0.0


def _usual(table: StepTimeTable) -> tuple[float, float]:
    """Return the ms of a small decode step and of a small prompt: the units of constants."""
    return float(table.decode_base_ns[1]) / 1e6, float(table.base_ns[128]) / 1e6


def _rising(counts: list[int], ms: NDArray[np.floating[Any]]) -> Points:
    return tuple(
        Point(float(n), six_digits(y))
        for n, y in zip(counts, np.maximum.accumulate(ms).tolist(), strict=True)
    )


#: Fewer rows cannot be split into fitted and held-out rows.
FEWEST_ROWS = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """A file of measurements: the selected rows, and kvsim's names of their model and GPU.

    ``model`` and ``gpu`` are needed only for kernels, whose times are per layer; ``links`` are the
    all-reduces of kernels of several GPUs, those of the GPU unless named. ``data_parallel`` is the number of
    ranks to which kernels of a mixture are composed, ``unequal`` a file of batches of unequal KV lengths.
    """

    path: Path
    only: dict[str, str]
    model: str = ""
    gpu: str = ""
    links: str = ""
    data_parallel: int = 1
    unequal: Path | None = None


#: The last step of a fit of kernels: unequal lengths, and the work that ranks share.
_Finish = Callable[[ParametricStepTime], ParametricStepTime]


@dataclass(frozen=True, slots=True)
class FittedRows:
    """A model, its held-out rows in their runs, the TP degree, and a description of the fit."""

    model: ParametricStepTime
    unseen: IterationRows
    runs: Runs
    tensor_parallel: int
    how: str

    def judged(self) -> tuple[IterationRows, NDArray[np.float64]]:
        """Return the held-out runs as rows, and the model's time of each in ms."""
        return self.runs.totals(self.unseen), self.runs.sums(predict_ms(self.model, self.unseen))


def measured_rows(measured: Measured) -> tuple[IterationRows, Points, _Finish]:
    """Return a file's iterations, composed if it holds kernels (a column ``kind``), base, and last step.

    Kernels give a step's time without attention separately, the base; iterations do not. The last step
    completes a model that was fitted to the rows.

    Raises UsageError if the selected rows are of several models or GPUs, or if kernels come without the names
    of model and GPU.
    """
    values = column_values(measured.path, ("kind", "model", "gpu", "tp"), measured.only)
    for column in ("model", "gpu"):
        if len(values[column]) > 1:
            found = ", ".join(sorted(values[column]))
            hint = f"choose one with --only {column}=…"
            raise UsageError(f"rows of several values of {column}", str(measured.path), got=found, hint=hint)
    if not values["kind"]:
        if measured.data_parallel > 1 or measured.unequal:
            raise UsageError("ranks and unequal lengths are composed of kernels", str(measured.path))
        return read_iterations(measured.path, measured.only), (), lambda fitted: fitted
    return _composed(measured, values["tp"])


def _composed(measured: Measured, degrees: set[str]) -> tuple[IterationRows, Points, _Finish]:
    """Return the iterations composed of kernels, their base, and the last step of their fit."""
    if not (measured.model and measured.gpu):
        raise UsageError("kernel times need --model and --gpu", hint="they give layers and memory")
    if len(degrees) > 1:
        raise UsageError(
            "kernels of several TP degrees", str(measured.path), hint="choose one with --only tp=…"
        )
    model, gpu = load_model(measured.model), load_gpu(measured.gpu)
    degree, ranks = int(min(degrees or {"1"})), measured.data_parallel
    free_bytes = kv_capacity_bytes(model, gpu, degree, data_parallel=ranks)
    capacity_tokens = free_bytes // model.kv_bytes_per_token_per_gpu(degree)
    links = load_links(measured.links) if measured.links else None
    kernels = with_all_reduces(read_kernels(measured.path, model, measured.only), model, gpu, degree, links)
    kernels, shared = with_experts(kernels, model, gpu, Degrees(degree, ranks), links)

    def finish(fitted: ParametricStepTime) -> ParametricStepTime:
        if measured.unequal is not None:
            only = {key: value for key, value in measured.only.items() if key != "tp"}
            fitted = with_unsplit_kv(fitted, model, measured.gpu, degree)
            fitted = with_spreads(fitted, measured.unequal, only, capacity_tokens)
        return with_shared_apart(fitted, shared, ranks)

    return kernels.iterations(capacity_tokens), kernels.base_points(), finish


def rows_of_degree(measured: Measured, tensor_parallel: int | None) -> tuple[IterationRows, Points, _Finish]:
    """Return a file's rows of one TP degree, their base, and the last step of a fit to them.

    Raises UsageError if there are several degrees and none is chosen.
    """
    rows, base, finish = measured_rows(measured)
    degrees = np.unique(rows.tensor_parallel)
    found = ", ".join(f"{degree:g}" for degree in degrees)
    if tensor_parallel is None and len(degrees) > 1:
        hint = "choose one with --tp"
        raise UsageError("rows of several TP degrees", str(measured.path), got=found, hint=hint)
    wanted = degrees[0] if tensor_parallel is None else tensor_parallel
    if wanted not in degrees:
        raise UsageError(f"no rows of TP degree {wanted}", where=str(measured.path), got=found)
    return rows.take(rows.tensor_parallel == wanted), base, finish


def fit_rows(measured: Measured, tensor_parallel: int | None) -> FittedRows:
    """Return the fit to four fifths of the rows of one TP degree.

    The form is the one with the lowest error on held-out folds. Kernels have a measured base: no choice. For
    an engine that observes steps late (a column ``seen_ms``, or decode steps lengthened by a chunk's launch)
    the sums of runs of steps are fitted.
    """
    rows, base, finish = rows_of_degree(measured, tensor_parallel)
    if len(rows) < FEWEST_ROWS:
        raise TraceError(
            "too few iterations to fit", str(measured.path), str(len(rows)), f"{FEWEST_ROWS} or more"
        )
    late = not base and _seen_late(measured, rows)
    runs = runs_of(rows) if late else single_steps(rows)
    out = held_out(len(runs))
    fitted, unseen = rows.take(runs.mask(~out)), rows.take(runs.mask(out))
    rates = load_gpu(measured.gpu).kernels if measured.gpu else UNMEASURED
    if late:
        model = fit_runs(fitted, runs.take(~out), rates)
        how = f"fitted to the sums of {len(runs)} runs of {len(rows)} steps"
    elif base:
        model, how = finish(fit_step_time(fitted, base, rates)), "fitted"
    else:
        chosen = fit_best(fitted, rates)
        model, how = chosen.model, f"fitted, {chosen.how}"
    return FittedRows(model, unseen, runs.take(out), int(rows.tensor_parallel[0]), how)


def _seen_late(measured: Measured, rows: IterationRows) -> bool:
    return SEEN_COLUMN in read_table(measured.path, (), measured.only).cells or seen_late(rows)


def _fitted_to_sums(step_time: str) -> bool:
    """True for a set whose file says so; other sources have no file."""
    return "@" not in step_time and "sums of" in str(step_time_entry(step_time).get("source"))


def check_rows(
    measured: Measured, tensor_parallel: int | None, step_time: str
) -> tuple[IterationRows, NDArray[np.float64], bool]:
    """Return a file's rows of one TP degree, a set's time of each in ms, and True if they are sums of runs.

    Rows of an engine that observes steps late are judged by the sums of their runs, as they are fitted, and
    so are all rows under a set that was fitted to sums.
    """
    rows, base, _ = rows_of_degree(measured, tensor_parallel)
    late = not base and (_seen_late(measured, rows) or _fitted_to_sums(step_time))
    runs = runs_of(rows) if late else single_steps(rows)
    return runs.totals(rows), runs.sums(predict_ms(load_step_time(step_time), rows)), late


def transfer_rows(measured: Measured, tensor_parallel: int) -> FittedRows:
    """Return the model at a TP degree from the rows of all other degrees; its own rows are held out."""
    rows, _, _ = measured_rows(measured)
    of_degree = rows.tensor_parallel == tensor_parallel
    model = fit_tensor_parallel(rows.take(~of_degree)).model(tensor_parallel)
    unseen = rows.take(of_degree)
    how = "transferred from other TP degrees"
    return FittedRows(model, unseen, single_steps(unseen), tensor_parallel, how)


@dataclass(frozen=True, slots=True)
class CorrectedBase:
    """A source corrected by rows: its file, errors by number of rows, and the number of compilation rows."""

    text: str
    curve: ErrorCurve
    dropped: int


def correct_base(measured: Measured, tensor_parallel: int | None, base: str, onto: str) -> CorrectedBase:
    """Return ``base``, or ``onto`` instead, with its parts scaled by a file's rows of one TP degree.

    A fifth of the rows is held out for the errors. Rows of compilation are left out.
    """
    all_rows, _, _ = rows_of_degree(measured, tensor_parallel)
    dropped = compiles(all_rows)
    rows, source = all_rows.take(~dropped), load_step_time(base)
    if len(rows) < FEWEST_ROWS:
        raise TraceError("too few iterations", str(measured.path), str(len(rows)), f"{FEWEST_ROWS} or more")
    out = held_out(len(rows))
    correction = fit_correction(source, rows.take(~out))
    target = measured_on(onto or base)
    model = correction.apply(load_step_time(onto or base))
    unseen = rows.take(out)
    errors = [] if onto else phase_errors(unseen, predict_ms(model, unseen))
    how = f"{onto or base} corrected by {measured.path.name}" + (f" of {base}" if onto else "")
    provenance = Provenance(target.model or "", target.gpu or "", target.tensor_parallel, how)
    return CorrectedBase(
        model_text(model, provenance, errors), error_curve(source, rows, out), int(dropped.sum())
    )
