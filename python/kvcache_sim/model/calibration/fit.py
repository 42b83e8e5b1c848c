"""The fit: non-negative, robust, on relative error; for one TP degree, or across several."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.calibration.design import Either, Form, form_for, form_through
from kvcache_sim.model.calibration.rows import IterationRows
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time import StepTime

#: What reading a token's KV costs in a mixed step, in decode steps' cost: 1.7–2.2 where both are measured.
MIXED_KV_FACTOR = 1.95
#: Relative errors above this count less and less (soft L1).
_ROBUST_SCALE = 0.05
#: A row of a rare phase counts as (rows of the commonest phase / rows of its own) to this power.
_PHASE_WEIGHT = 0.25
#: First guesses: the longest sequence shows where it exceeds the mean by this factor.
_START_UNEVENNESS = (1.5, 2.5, 3.5, np.inf)
#: It ends when this many rounds together gain less than this share, or after so many in all.
_PATIENCE = 8
_SETTLED = 1e-5
_ROUNDS = 60
_TRANSFER_BASE = (1.0, 32.0, 128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
_TRANSFER_LONGEST = (0.0, 24.0)


def fit_step_time(rows: IterationRows) -> ParametricStepTime:
    """Return the model fitted to rows of one TP degree (needs scipy; seconds for 10⁵ rows).

    Raises UsageError when scipy is not installed.
    """
    form = form_for(rows)
    return with_mixed_kv(form.model(solve(form.columns(rows), rows, form.either)), rows)


def with_mixed_kv(model: ParametricStepTime, rows: IterationRows) -> ParametricStepTime:
    """Return the model with an assumed KV coefficient of mixed steps where no row is one.

    It is ``MIXED_KV_FACTOR`` times that of decode steps.
    """
    if rows.phases()["mixed"].any():
        return model
    return replace(model, kv_mixed_ms_per_thousand=round(MIXED_KV_FACTOR * model.kv_ms_per_thousand, 6))


def interpolate_step_time(rows: IterationRows) -> ParametricStepTime:
    """Return the model that joins the measured token counts by straight lines: a table rather than a fit.

    Attention stays linear, since KV lengths are never measured densely. Raises UsageError when the rows mix
    TP degrees.
    """
    if len(np.unique(rows.tensor_parallel)) > 1:
        raise UsageError("more than one TP degree in the rows", hint="keep the rows of one degree")
    form = form_through(rows)
    return with_mixed_kv(form.model(solve(form.columns(rows), rows, form.either)), rows)


@dataclass(frozen=True, slots=True)
class TensorParallelFit:
    """A model family over TP degrees: each coefficient is ``shared + split / tp``.

    ``shared`` is zero except for the fixed cost of a step and its cost a token above 32 tokens: latency,
    host work and communication do not get shorter; weights, attention and GEMMs are split.
    """

    form: Form
    split: NDArray[np.float64]
    shared: NDArray[np.float64]

    def model(self, tensor_parallel: int) -> ParametricStepTime:
        """Return the model at one TP degree."""
        return self.form.model(self.split / tensor_parallel + self.shared)


def fit_tensor_parallel(rows: IterationRows) -> TensorParallelFit:
    """Return the family fitted to rows of at least two TP degrees; UsageError when there is one."""
    if len(np.unique(rows.tensor_parallel)) < 2:
        raise UsageError("one TP degree in the rows", expected="two or more, to tell what a degree splits")
    top = float((rows.prefill_tokens + rows.decode_sequences).max())
    base = tuple(k for k in _TRANSFER_BASE if k <= top) or (1.0,)
    form = Form(base, _TRANSFER_LONGEST)
    columns = form.columns(rows)
    size = columns.shape[1]
    kept = [0, *(j for j, knot in enumerate(base) if knot > 32)]
    joint = np.concatenate((columns / rows.tensor_parallel[:, None], columns[:, kept]), axis=1)
    solution = solve(joint, rows, form.either)
    shared = np.zeros(size)
    shared[kept] = solution[size:]
    return TensorParallelFit(form, solution[:size], shared)


def solve(columns: NDArray[np.float64], rows: IterationRows, either: Either) -> NDArray[np.float64]:
    """Return the coefficients ≥ 0 that minimise the soft-L1 loss of the relative error.

    Iteratively reweighted non-negative least squares; each round settles anew which group of ``either`` a row
    shows. It starts from several guesses of that and keeps the best end.
    """
    matrix = columns * (_phase_weights(rows) / rows.iter_ms)[:, None]
    goal = _phase_weights(rows)
    n = np.maximum(rows.decode_sequences, 1)
    unevenness = n * rows.decode_max_kv_tokens / np.maximum(rows.decode_kv_tokens, 1)
    ends = [_descend(matrix, goal, either, unevenness > limit) for limit in _START_UNEVENNESS]
    return min(ends, key=lambda end: end[0])[1]


def _descend(
    matrix: NDArray[np.float64], goal: NDArray[np.float64], either: Either, alone: NDArray[np.bool_]
) -> tuple[float, NDArray[np.float64]]:
    """Return the best loss met from one guess of the rows whose longest sequence shows, and its solution."""
    try:
        from scipy.optimize import nnls
    except ModuleNotFoundError:
        raise UsageError("fitting needs scipy", hint="pip install 'kvcache-sim[calibrate]'") from None

    best: tuple[float, NDArray[np.float64]] = (np.inf, np.zeros(matrix.shape[1]))
    weight, idle = np.ones(len(goal)), 0
    for _ in range(_ROUNDS):
        chosen = matrix * weight[:, None]
        chosen[:, either.shared] *= ~alone[:, None]
        chosen[:, either.alone] *= alone[:, None]
        # The triangle of a QR decomposition has the same least-squares problem in few rows.
        weighted = np.column_stack((chosen, goal * weight))
        triangle: NDArray[np.float64] = np.asarray(np.linalg.qr(weighted, mode="r"))
        solution = nnls(triangle[:, :-1], triangle[:, -1], maxiter=50 * matrix.shape[1])[0]
        shared = matrix[:, either.shared] @ solution[either.shared]
        longest = matrix[:, either.alone] @ solution[either.alone]
        alone = longest > shared
        rest = np.delete(np.arange(matrix.shape[1]), [*either.shared, *either.alone])
        error = (matrix[:, rest] @ solution[rest] + np.maximum(shared, longest) - goal) / _ROBUST_SCALE
        loss = float(np.sum(np.sqrt(1 + error**2) - 1))
        idle = 0 if loss < best[0] * (1 - _SETTLED) else idle + 1
        best = min(best, (loss, solution), key=lambda end: end[0])
        if idle == _PATIENCE:
            break
        weight = (1 + error**2) ** -0.25
    return best


def _phase_weights(rows: IterationRows) -> NDArray[np.float64]:
    phases = rows.phases().values()
    commonest = max(int(mask.sum()) for mask in phases)
    weights = np.ones(len(rows))
    for mask in phases:
        weights[mask] = (commonest / max(int(mask.sum()), 1)) ** _PHASE_WEIGHT
    return weights


def predict_ms(model: StepTime, rows: IterationRows) -> NDArray[np.float64]:
    """Return the model's time of each row in ms, read from the integer table the simulator reads.

    Of several chunks in a step only sums are known; equal ones are assumed, as in the fit.
    """
    tokens = (rows.prefill_tokens + rows.decode_sequences).astype(np.int64)
    n = rows.decode_sequences.astype(np.int64)
    table = model.table(int(tokens.max()), int(n.max()))
    if table is None:
        raise UsageError("the model has no table to compare with")
    longest = table.longest_fs[n] if len(table.longest_fs) else 0
    mixed = rows.prefill_tokens > 0
    chunks = np.maximum(rows.prefill_requests, 1)
    pairs = rows.prefill_tokens * (2 * rows.past_tokens + rows.prefill_tokens) / chunks
    spread = np.maximum(n * rows.decode_max_kv_tokens - rows.decode_kv_tokens, 0)
    kv = np.where(mixed, table.kv_mixed_fs, table.kv_decode_fs) * rows.decode_kv_tokens
    fs = np.maximum(kv, longest * rows.decode_max_kv_tokens) + table.sequence_fs * n
    fs += np.where(mixed, table.spread_mixed_fs, table.spread_decode_fs) * spread
    fs += np.where(mixed, table.pair_half_fs * pairs + table.past_fs * rows.past_tokens, 0.0)
    base = np.where(mixed, table.base_ns[tokens], table.decode_base_ns[n])
    return np.asarray(base / 1e6 + fs / 1e12, np.float64)
