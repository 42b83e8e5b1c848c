"""The fit: non-negative, robust, on relative error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.design import Floors, Form, form_apart, form_for, form_through
from kvcache_sim.extras.calibrate.rows import IterationRows, read_iterations, scipy_optimize
from kvcache_sim.extras.calibrate.runs import Runs, single_steps
from kvcache_sim.model.gpus import UNMEASURED, KernelRates
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.points import Points
from kvcache_sim.model.step_time import StepTime, StepTimeTable

#: Relative errors above this value have decreasing weight (soft L1).
_ROBUST_SCALE = 0.05
#: The same for sums of runs; also the number of rounds in which errors are computed anew relative to the
#: model's own time. Both minimized the error on held-out folds of two sweeps (``h100-sweep-loss.toml``).
_RUNS_SCALE = 0.2
_OWN_ROUNDS = 2
#: A row of a rare phase has the weight (rows of the most common phase / rows of its own) to this power.
_PHASE_WEIGHT = 0.25
#: Initial guesses: the longest sequence is visible if it exceeds the mean by this factor.
_START_UNEVENNESS = (1.5, 2.5, 3.5, np.inf)
#: The longest sequence's KV counts as a scan if it exceeds the mean's share by this factor; none: never.
_START_SCANS = (0.0, 1.0, 5.0)
#: A step without a graph takes as long as its launch below this number of tokens.
_START_LAUNCHED = (1000.0, 3000.0, 6000.0)
#: Tile sizes of attention kernels that are tried: keys of a decode sequence, queries of a chunk.
_KEY_TILES = (32, 64, 96, 128)
_QUERY_TILES = (64, 128)
#: Convergence: this many rounds together gain less than this share, or the total number of rounds is reached.
_PATIENCE = 8
_SETTLED = 1e-5
_ROUNDS = 60


def fit_step_time(
    rows: IterationRows,
    measured_base: Points = (),
    rates: KernelRates = UNMEASURED,
) -> ParametricStepTime:
    """Return the model fitted to rows of one TP degree (needs scipy; seconds for 10⁵ rows).

    The tiles are those of least loss on these rows. ``measured_base`` (tokens, ms) is kept except for a
    constant. ``rates`` are the GPU's; their factor applies if no step mixes decodes with a chunk. Raises
    UsageError if scipy is not installed.
    """
    form, found = _fit_tiles(form_for(rows, measured=measured_base), rows, single_steps(rows))
    return with_mixed_kv(form.model(found.coefficients), rows, rates)


def fit_runs(rows: IterationRows, runs: Runs, rates: KernelRates = UNMEASURED) -> ParametricStepTime:
    """Return the model fitted to the measured sums over runs, with a separate base of decode steps.

    For engines that launch a step before they receive the last step's tokens. A chunk's launch is part of its
    base, which decode steps do not share. Errors are relative to the model's time, not to the measured time:
    such times scatter, mostly upwards, and a fit that divides by them stays below their mean.
    """
    form, found = _fit_tiles(form_apart(rows), rows, runs)
    return with_mixed_kv(form.model(_against_own(form, rows, runs, found).coefficients), rows, rates)


def _against_own(form: Form, rows: IterationRows, runs: Runs, found: Solution) -> Solution:
    """Return a new solution with errors relative to the solution's own times."""
    columns, known_ms = form.columns(rows), form.known_ms(rows)
    for _ in range(_OWN_ROUNDS):
        own_ms = runs.sums(known_ms + _taken(columns, form.floors, found.coefficients)[0])
        problem = _problem(columns, rows, form.floors, known_ms, runs)
        found = _descend(problem.relative_to(own_ms / runs.totals(rows).iter_ms, _RUNS_SCALE), found.shown)
    return found


def _fit_tiles(form: Form, rows: IterationRows, runs: Runs) -> tuple[Form, Solution]:
    best = solve(form.columns(rows), rows, form.floors, form.known_ms(rows), runs=runs)
    for tile in _KEY_TILES if (rows.decode_sequences > 0).any() else ():
        form, best = _better(form, best, replace(form, least_kv_tokens=tile), rows, runs)
    for tile in _QUERY_TILES if (rows.past_tokens > 0).any() else ():
        form, best = _better(form, best, replace(form, least_query_tokens=tile), rows, runs)
    return form, best


def _better(
    form: Form, best: Solution, other: Form, rows: IterationRows, runs: Runs
) -> tuple[Form, Solution]:
    """Return the form of less loss, and its solution; the other form starts from the first one's result."""
    solution = solve(other.columns(rows), rows, other.floors, other.known_ms(rows), best.shown, runs)
    return (other, solution) if solution.loss < best.loss else (form, best)


def with_mixed_kv(model: ParametricStepTime, rows: IterationRows, rates: KernelRates) -> ParametricStepTime:
    """Return the model with an assumed KV coefficient of mixed steps if no row is a mixed step.

    It is the coefficient of decode steps times the factor of the GPU's attention backend.
    """
    if rows.phases()["mixed"].any():
        return model
    return replace(model, kv_mixed_ms_per_thousand=round(rates.mixed_kv_factor * model.kv_ms_per_thousand, 6))


def read_step_time(path: Path) -> ParametricStepTime:
    """Return the step times of a file of measured iterations.

    The entry point ``iterations`` of ``kvsim.step_times``.
    """
    return interpolate_step_time(read_iterations(path))


def interpolate_step_time(rows: IterationRows) -> ParametricStepTime:
    """Return the model that joins the measured token counts by straight lines: a table rather than a fit.

    Attention stays linear, since KV lengths are never measured densely. Raises UsageError if the rows mix TP
    degrees.
    """
    if len(np.unique(rows.tensor_parallel)) > 1:
        raise UsageError("more than one TP degree in the rows", hint="keep the rows of one degree")
    form = form_through(rows)
    solution = solve(form.columns(rows), rows, form.floors, form.known_ms(rows))
    return with_mixed_kv(form.model(solution.coefficients), rows, UNMEASURED)


@dataclass(frozen=True, slots=True)
class Shown:
    """Active lower bounds in each row: of attention, the longest sequence alone or the scan; the launch."""

    alone: NDArray[np.bool_]
    scanned: NDArray[np.bool_]
    launched: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a descent: its loss, its coefficients, and the active bounds of the rows."""

    loss: float
    coefficients: NDArray[np.float64]
    shown: Shown


def solve(
    columns: NDArray[np.float64],
    rows: IterationRows,
    floors: Floors,
    known_ms: NDArray[np.float64],
    start: Shown | None = None,
    runs: Runs | None = None,
) -> Solution:
    """Return the coefficients ≥ 0 that minimize the soft-L1 loss of the relative error of each run's sum.

    Iteratively reweighted non-negative least squares of the time not in ``known_ms``; each round determines
    the active bound of each row again. It starts from ``start``, or from several guesses, and returns the
    best result. Without ``runs`` each row is a run.
    """
    starts = [start] if start is not None else _guesses(columns, rows, floors)
    problem = _problem(columns, rows, floors, known_ms, runs or single_steps(rows))
    return min((_descend(problem, guess) for guess in starts), key=lambda end: end.loss)


def _problem(
    columns: NDArray[np.float64],
    rows: IterationRows,
    floors: Floors,
    known_ms: NDArray[np.float64],
    runs: Runs,
) -> _Problem:
    totals = runs.totals(rows)
    weights = _phase_weights(totals)
    matrix = columns * runs.rowwise(weights / totals.iter_ms)[:, None]
    goal = weights * (1 - runs.sums(known_ms) / totals.iter_ms)
    return _Problem(matrix, goal, floors, runs)


@dataclass(frozen=True, slots=True)
class _Problem:
    """The input of a descent: weighted columns by row, and the weighted target of each run."""

    matrix: NDArray[np.float64]
    goal: NDArray[np.float64]
    floors: Floors
    runs: Runs
    scale: float = _ROBUST_SCALE

    def relative_to(self, times: NDArray[np.float64], scale: float) -> _Problem:
        """Return the problem with each run's error relative to a multiple of the measured time."""
        matrix = self.matrix / self.runs.rowwise(times)[:, None]
        return _Problem(matrix, self.goal / times, self.floors, self.runs, scale)


def _guesses(columns: NDArray[np.float64], rows: IterationRows, floors: Floors) -> list[Shown]:
    n, kv = np.maximum(rows.decode_sequences, 1), np.maximum(rows.decode_kv_tokens, 1)
    unevenness = n * rows.decode_max_kv_tokens / kv
    scan = columns[:, floors.scan[0]] * 1e3
    tokens = rows.prefill_tokens + rows.decode_sequences
    choices = (
        [unevenness > limit for limit in (_START_UNEVENNESS if len(floors.alone) else (np.inf,))],
        [share * scan > kv for share in (_START_SCANS if scan.any() else (0.0,))],
        [tokens < limit for limit in (_START_LAUNCHED if len(floors.launch) else (0.0,))],
    )
    return [Shown(*choice) for choice in product(*choices)]


def _descend(problem: _Problem, shown: Shown) -> Solution:
    """Return the best solution found from one guess of the active bounds."""
    nnls = scipy_optimize().nnls
    matrix, goal, floors, runs = problem.matrix, problem.goal, problem.floors, problem.runs
    best = Solution(np.inf, np.zeros(matrix.shape[1]), shown)
    weight, idle = np.ones(len(goal)), 0
    parts = floors.parts
    for _ in range(_ROUNDS):
        chosen = matrix.copy()
        unscanned = ~shown.scanned
        of_attention = (~shown.alone & unscanned, shown.alone & unscanned, unscanned, shown.scanned)
        counts = (*of_attention, shown.launched, ~shown.launched)
        for part, count in zip(parts, counts, strict=True):
            chosen[:, part] *= count[:, None]
        # The triangle of a QR decomposition has the same least-squares problem in few rows.
        weighted = np.column_stack((runs.sums(chosen) * weight[:, None], goal * weight))
        triangle: NDArray[np.float64] = np.asarray(np.linalg.qr(weighted, mode="r"))
        solution = nnls(triangle[:, :-1], triangle[:, -1], maxiter=50 * matrix.shape[1])[0]
        taken, active = _taken(matrix, floors, solution)
        error = (runs.sums(taken) - goal) / problem.scale
        loss = float(np.sum(np.sqrt(1 + error**2) - 1))
        idle = 0 if loss < best.loss * (1 - _SETTLED) else idle + 1
        shown = active
        if loss < best.loss:
            best = Solution(loss, solution, shown)
        if idle == _PATIENCE:
            break
        weight = (1 + error**2) ** -0.25
    return best


def _taken(
    columns: NDArray[np.float64], floors: Floors, coefficients: NDArray[np.float64]
) -> tuple[NDArray[np.float64], Shown]:
    """Return the coefficients' time of each row, without the known part, and the active bounds."""
    rest = floors.rest(columns.shape[1])
    shared, alone, pairs, scan, launch, kernels = (
        columns[:, part] @ coefficients[part] for part in floors.parts
    )
    attention = np.maximum(shared, alone) + pairs
    taken = columns[:, rest] @ coefficients[rest] + np.maximum(attention, scan) + np.maximum(launch, kernels)
    return np.asarray(taken, np.float64), Shown(alone > shared, scan > attention, launch > kernels)


def _phase_weights(rows: IterationRows) -> NDArray[np.float64]:
    phases = rows.phases().values()
    commonest = max(int(mask.sum()) for mask in phases)
    weights = np.ones(len(rows))
    for mask in phases:
        weights[mask] = (commonest / max(int(mask.sum()), 1)) ** _PHASE_WEIGHT
    return weights


def predict_ms(model: StepTime, rows: IterationRows) -> NDArray[np.float64]:
    """Return the model's time of each row in ms, from the integer table that the simulator reads.

    Only sums are known of several chunks in a step; equal chunks are assumed, as in the fit.
    """
    tokens = (rows.prefill_tokens + rows.decode_sequences).astype(np.int64)
    n = rows.decode_sequences.astype(np.int64)
    table = model.table(int(tokens.max()), int(n.max()))
    mixed = rows.prefill_tokens > 0
    chunks = np.maximum(rows.prefill_requests, 1)
    new, past = rows.prefill_tokens / chunks, rows.past_tokens / chunks
    pairs = rows.twice_pairs(table.least_query_tokens)
    kv_tokens = np.maximum(rows.decode_kv_tokens, table.least_kv_tokens * n)
    kv = np.where(mixed, table.kv_mixed_fs, table.kv_decode_fs) * kv_tokens
    spread = np.maximum(n * rows.decode_max_kv_tokens - kv_tokens, 0)
    kv += np.where(mixed, table.spread_mixed_fs, table.spread_decode_fs) * spread
    fs = np.maximum(kv, _longest_fs(table, n, rows.decode_max_kv_tokens, kv_tokens))
    scan = table.scan_fs * np.maximum(rows.decode_max_kv_tokens, new + past)
    fs = np.where(mixed, np.maximum(fs + table.pair_half_fs * pairs, scan), fs) + table.sequence_fs * n
    chunk_fs = table.past_fs * rows.past_tokens + table.idle_fs * n * rows.prefill_tokens
    fs += np.where(mixed, chunk_fs + table.alongside_fs * (n > 0), 0.0)
    base = np.where(mixed, chunk_base_ns(table, tokens, rows), table.decode_base_ns[n])
    each = (rows.decode_kv_tokens // np.maximum(n, 1)).astype(np.float64)
    decode_ms = np.where(
        mixed,
        *(grid.each(n.astype(np.float64), each) for grid in (table.residuals.beside, table.residuals.kv)),
    )
    rest = np.where(n > 0, decode_ms, 0.0) + np.where(
        past > 0, chunks * table.residuals.past.each(new, past), 0.0
    )
    computed = np.maximum((base + rest) / 1e6 + fs / 1e12, 0.0)
    held = np.where(mixed, table.pieces_launch_ns, table.graph_launch_ns)
    launched = np.where(tokens > table.captured_tokens, table.launch_ns, held) + table.tail_ns
    launched = launched + (table.launch_sequence_ns + table.tail_sequence_ns) * n
    return np.asarray(np.maximum(computed, launched / 1e6), np.float64)


def _longest_fs(
    table: StepTimeTable, n: NDArray[np.int64], longest: NDArray[np.float64], kv: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the lower bounds of attention by the longest decode sequence, in fs."""
    alone = (table.longest_fs[n] if len(table.longest_fs) else 0) * longest
    last = np.maximum(table.unsplit_fs * longest - table.unsplit_hidden_fs // np.maximum(n, 1) * kv, 0.0)
    unsplit = table.kv_decode_fs * kv + last
    is_unsplit = (n >= table.unsplit_sequences) & (table.unsplit_sequences > 0)
    return np.maximum(alone, np.where(is_unsplit, unsplit, 0.0))


def chunk_base_ns(table: StepTimeTable, tokens: NDArray[np.int64], rows: IterationRows) -> NDArray[np.int64]:
    """Return the base that each row would have as a step with a chunk, in ns: by its tokens and its past."""
    if not len(table.past_base_ns):
        return table.base_ns[tokens]
    return np.where(rows.past_tokens > 0, table.past_base_ns[tokens], table.base_ns[tokens])
