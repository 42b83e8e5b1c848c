"""A step-time set from requests alone: non-negative, with intervals and undetermined terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.calibrate.design import LINEAR, Form
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.request_steps import MeasuredSums, TimedRequests, measured_sums
from kvcache_sim.extras.calibrate.rows import held_out, scipy_optimize
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_time_file import PhaseError

_LOW, _HIGH = 5.0, 95.0
#: An interval wider than this share of the value means that the log does not determine the term.
_WIDE = 0.5
#: Terms with at least this negative correlation in redrawn logs are reported as indistinguishable.
_TOGETHER = -0.5

#: A model and the client's constant in ms.
Fitted = tuple[ParametricStepTime, float]


@dataclass(frozen=True, slots=True)
class Term:
    """A quantity that a fit estimates: its value, and the middle 90 % of its values over redrawn requests.

    ``unclear`` is the reason why the log does not determine it, or empty.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    unclear: str


def terms_of(found: Fitted, redrawn: Sequence[Fitted], sums: MeasuredSums) -> tuple[Term, ...]:
    """Return the terms of a fit with their intervals: steps at the log's 10th, 50th and 90th percentile."""
    batches = _batches(sums)
    names, steps = [*batches, *_SINGLE], [*batches.values()]
    units = ["ms"] * len(batches) + list(_SINGLE.values())
    values = _values(found, steps)
    others = np.array([_values(one, steps) for one in redrawn])
    low, high = np.percentile(others, (_LOW, _HIGH), axis=0)
    unclear = [
        _unclear(k, names, others) if high[k] - low[k] > _WIDE * max(values[k], 1e-12) else ""
        for k in range(len(names))
    ]
    return tuple(
        Term(name, unit, value, float(low[k]), float(high[k]), unclear[k])
        for k, (name, unit, value) in enumerate(zip(names, units, values, strict=True))
    )


#: Single costs, and their units.
_SINGLE = {
    "KV that a decode reads": "ms per 1,000 tokens",
    "a prompt's attention to itself": "ms per million token pairs",
    "client and queue before the scheduler": "ms",
}


def _values(fitted: Fitted, batches: list[StepBatch]) -> list[float]:
    model, client_ms = fitted
    steps = [model.step(batch) / 1e6 for batch in batches]
    return [*steps, model.kv_ms_per_thousand, model.pairs_ms_per_million, client_ms]


def _batches(sums: MeasuredSums) -> dict[str, StepBatch]:
    """Return batches from the log by description: decode steps by sequences, single chunks by tokens."""
    steps = sums.steps
    decodes = steps.prefill_tokens == 0
    found: dict[str, StepBatch] = {}
    each = _mean(steps.decode_kv_tokens[decodes] / np.maximum(steps.decode_sequences[decodes], 1))
    for n in _percentiles(steps.decode_sequences[decodes]):
        kv = n * each
        found[f"decode step, {n} sequences of {each:,} tokens"] = StepBatch((), n, kv, each)
    for new in _percentiles(steps.prefill_tokens[~decodes]):
        found[f"step of a chunk of {new:,} tokens"] = StepBatch(((new, 0),))
    return found


def _percentiles(values: NDArray[np.float64]) -> list[int]:
    return sorted({max(1, round(float(v))) for v in np.percentile(values, (10, 50, 90))})


def _mean(values: NDArray[np.float64]) -> int:
    return max(1, round(float(values.mean())))


def _unclear(k: int, names: list[str], others: NDArray[np.float64]) -> str:
    """Return why a term that varies is undetermined, with the other term if one falls as it rises."""
    moves = others - others.mean(axis=0)
    size = np.sqrt((moves**2).sum(axis=0))
    together = (moves.T @ moves[:, k]) / np.maximum(size * size[k], 1e-300)
    against = int(np.argmin(together))
    if together[against] < _TOGETHER:
        return f"indistinguishable from: {names[against]}"
    return "poorly determined by the log"


#: Fewer requests cannot be fitted and evaluated.
FEWEST_REQUESTS = 30
#: Relative errors above this value have decreasing weight (soft L1).
_ROBUST_SCALE = 0.05
_ROUNDS = 12
_ROUNDS_REDRAWN = 3
_DRAWS = 100
#: Possible breakpoints of the bases: tokens of a step with a chunk, decode sequences; and the steps that a
#: knot needs on each side of it.
_CHUNK_KNOTS = (128.0, 512.0, 2048.0, 8192.0)
_DECODE_KNOTS = (8.0, 32.0, 128.0)
_LEAST_STEPS = 8
#: The linear terms that requests determine.
_SHOWN = ("kv", "pairs")


@dataclass(frozen=True, slots=True)
class RequestFit:
    """A set fitted to a log, the client's constant in ms, its terms, and the errors on held-out requests.

    The error of ``decode`` is that of TPOT, of ``prefill`` that of TTFT of requests that did not wait.
    """

    model: ParametricStepTime
    client_ms: float
    terms: tuple[Term, ...]
    errors: tuple[PhaseError, ...]


def fit_requests(log: TimedRequests, max_num_batched_tokens: int) -> RequestFit:
    """Return the set fitted to a log's requests; needs scipy. Seconds for a thousand requests.

    A fifth of the requests is held out for the errors, but still counts as load for the others; intervals are
    of 100 fits to requests drawn with replacement. Raises UsageError for too few requests, and if no answer
    has two tokens.
    """
    if len(log) < FEWEST_REQUESTS:
        expected = f"{FEWEST_REQUESTS} or more"
        raise UsageError("too few requests to fit", got=str(len(log)), expected=expected)
    if int((log.output_tokens > 1).sum()) < FEWEST_REQUESTS // 2:
        raise UsageError("answers of one token show no decode step", expected="longer answers")
    sums = measured_sums(log, max_num_batched_tokens)
    form = _form(sums.steps.prefill_tokens + sums.steps.decode_sequences, sums.steps.prefill_tokens > 0)
    out = held_out(len(log))[sums.request]
    of_steps = sums.sums(form.columns(sums.steps))
    columns = np.concatenate((sums.to_first[:, None].astype(np.float64), of_steps), axis=1)
    relative = columns[~out] / sums.measured_ms[~out, None]
    relative[:, _left_out(form)] = 0.0
    solver = _Solver(relative)
    found = solver.solve(np.ones(len(relative)))
    model, client_ms = form.model(found[1:]), float(found[0])
    generator = stream(20261121, "calibration.requests")
    others = []
    for _ in range(_DRAWS):
        drawn = np.bincount(generator.integers(0, len(log), len(log)), minlength=len(log))
        draw = solver.solve(np.sqrt(drawn[sums.request[~out]]))
        others.append((form.model(draw[1:]), float(draw[0])))
    terms = terms_of((model, client_ms), others, sums)
    return RequestFit(model, client_ms, terms, _errors(model, client_ms, sums, out))


def _form(tokens: NDArray[np.float64], mixed: NDArray[np.bool_]) -> Form:
    """Return the form with a base of decode steps and one of steps with a chunk, with knots at the data."""
    return Form(
        _knots(_CHUNK_KNOTS, tokens[mixed]), (), decode_knots=_knots(_DECODE_KNOTS, np.sort(tokens[~mixed]))
    )


def _knots(usual: tuple[float, ...], seen: NDArray[np.float64]) -> tuple[float, ...]:
    knots = [max(1.0, float(np.percentile(seen, 2)))]
    top = float(seen.max())
    for knot in (*usual, top):
        below = int(((seen > knots[-1]) & (seen <= knot)).sum())
        if knot > 1.2 * knots[-1] and knot <= top and below >= _LEAST_STEPS:
            knots.append(knot)
    return tuple(knots)


def _left_out(form: Form) -> list[int]:
    """Return the columns, after the client's, of linear terms that a sum of steps does not determine."""
    return [1 + len(form.base_knots) + k for k, name in enumerate(LINEAR) if name not in _SHOWN]


class _Solver:
    """Fits of one matrix, whose rows are relative to the measured times, under several row weights."""

    def __init__(self, relative: NDArray[np.float64]) -> None:
        self._kept = np.flatnonzero(relative.any(axis=0))
        self._size = relative.shape[1]
        self._matrix = relative[:, self._kept]
        self._robust = np.ones(len(relative))

    def solve(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coefficients ≥ 0 of least soft-L1 relative error; later calls start at the first."""
        nnls = scipy_optimize().nnls
        robust = self._robust
        first = bool((robust == 1).all())
        for _ in range(_ROUNDS if first else _ROUNDS_REDRAWN):
            both = (weights * robust)[:, None]
            rows = np.concatenate((self._matrix * both, both), axis=1)
            triangle: NDArray[np.float64] = np.asarray(np.linalg.qr(rows, mode="r"))
            found = nnls(triangle[:, :-1], triangle[:, -1], maxiter=50 * self._size)[0]
            error = (self._matrix @ found - 1) / _ROBUST_SCALE
            robust = (1 + error**2) ** -0.25
        if first:
            self._robust = robust
        coefficients = np.zeros(self._size)
        coefficients[self._kept] = found
        return coefficients


def _errors(
    model: ParametricStepTime, client_ms: float, sums: MeasuredSums, out: NDArray[np.bool_]
) -> tuple[PhaseError, ...]:
    """Return the errors of the model's table on the held-out sums."""
    predicted = sums.sums(predict_ms(model, sums.steps)[:, None])[:, 0] + client_ms * sums.to_first
    error = 100 * (predicted / sums.measured_ms - 1)
    chosen = (("decode", out & ~sums.to_first), ("prefill", out & sums.to_first))
    return tuple(_phase_error(name, error[rows]) for name, rows in chosen if rows.any())


def _phase_error(phase: str, error: NDArray[np.float64]) -> PhaseError:
    size = np.abs(error)
    p95 = float(np.percentile(size, 95))
    return PhaseError(phase, len(error), float(size.mean()), p95, float(error.mean()))
