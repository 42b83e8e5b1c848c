"""Tables sampled from the library's step times by tokens and KV, and their errors at other steps.

The base is the source's own time at each breakpoint of token counts: its kernels change there, up and down.
The linear terms (KV, new × past tokens, sequences, a constant of decodes in steps with a chunk) are fitted.
If their error is too large, the remaining error is sampled (``residuals``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.rng import stream
from kvcache_sim.extras.calibrate.aiconfigurator.kernels import MeasuredKernels
from kvcache_sim.extras.calibrate.aiconfigurator.sampled import SampledStepTime
from kvcache_sim.extras.calibrate.design import LINEAR, Form
from kvcache_sim.extras.calibrate.fit import predict_ms, solve
from kvcache_sim.extras.calibrate.rows import IterationRows, phase_errors
from kvcache_sim.model.parametric import ParametricStepTime, six_digits
from kvcache_sim.model.points import Point, Points
from kvcache_sim.model.residual_grid import ResidualGrid, Residuals
from kvcache_sim.model.step_time import StepTime
from kvcache_sim.model.step_time_file import PhaseError

#: Largest relative deviation of the source from the line between two breakpoints, at the sampled counts.
_CLOSE = 0.004


def breakpoints(ms_of: Callable[[int], float], counts: Sequence[int]) -> dict[int, float]:
    """Return the ms at the given rising counts and at counts between them that a straight line misses.

    Of each span the middle and both counts next to its ends are evaluated: a kernel changes right past a
    count that it was tuned for, so such counts should be among those given. ``ms_of`` is called once per
    count, for a smooth source four times per span.
    """
    found = {count: ms_of(count) for count in counts}
    spans = list(pairwise(counts))
    while spans:
        left, right = spans.pop()
        inner = sorted({left + 1, (left + right) // 2, right - 1} - {left, right})
        missed = False
        for count in inner:
            if count not in found:
                found[count] = ms_of(count)
            line = found[left] + (found[right] - found[left]) * (count - left) / (right - left)
            missed = missed or abs(line - found[count]) > _CLOSE * found[count]
        if missed:
            spans += pairwise((left, *inner, right))
    return dict(sorted(found.items()))


_NS_PER_MS = 1e6


class _Step(NamedTuple):
    """A step to evaluate: a chunk's new and past tokens, decode sequences and the KV tokens of all."""

    prefill_tokens: int
    past_tokens: int
    decode_sequences: int
    decode_kv_tokens: int


def _halves(least: int, most: int) -> tuple[int, ...]:
    """Return 1, and the powers of two from ``least`` to ``most`` with the middles between them."""
    powers = [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
    return (1, *sorted(n for power in powers for n in (power, power + power // 2) if 1 < n <= most))


_RESIDUAL_SEQUENCES = _halves(2, 512)
_CHUNKS = _halves(8, 16_384)
_RESIDUAL_TOKENS = _halves(64, 65_536)
#: The chunk of the mixed steps in which decodes are sampled.
_MIXED_CHUNK = 512


def sampled_residuals(kernels: MeasuredKernels, linear: StepTime, most_kv: int) -> Residuals:
    """Return the residuals of a linear model: decodes' KV, in decode and mixed steps, and a chunk's past.

    No step of more than ``most_kv`` tokens is evaluated: there, as past a grid's borders, the residual of the
    nearest sampled step applies.
    """

    def decodes(chunk: int) -> ResidualGrid:
        return _sampled(
            kernels,
            linear,
            _RESIDUAL_SEQUENCES,
            lambda n, each: _Step(chunk, 0, n, n * min(each, most_kv // n)),
        )

    past = _sampled(kernels, linear, _CHUNKS, lambda new, past: _Step(new, past, 0, 0))
    return Residuals(decodes(0), decodes(_MIXED_CHUNK), past)


def _sampled(
    kernels: MeasuredKernels,
    linear: StepTime,
    counts: tuple[int, ...],
    step: Callable[[int, int], _Step],
) -> ResidualGrid:
    rows = kernels.rows(
        np.array([step(count, tokens) for count in counts for tokens in _RESIDUAL_TOKENS], np.int64)
    )
    shape = (len(counts), len(_RESIDUAL_TOKENS))
    residual = np.rint((rows.iter_ms - predict_ms(linear, rows)).reshape(shape) * _NS_PER_MS).astype(np.int64)
    return ResidualGrid(counts, _RESIDUAL_TOKENS, tuple(map(tuple, residual.tolist())))


#: Every number of decode sequences up to this one has its own base.
_SEQUENCES = 512
_KV_EACH = (16, 256, 1024, 4096, 16_384, 65_536)
#: Token counts of chunks between which breakpoints are searched.
_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_PAST = (64, 256, 1024, 4096, 16_384, 65_536)
#: No step of more KV than this is sampled: it fits on no GPU.
_MOST_KV = 2_000_000
#: A past of this many times the chunk, or more, is not sampled: it occurs only in the last step of a prompt.
_PAST_TIMES = 512
_RANDOM_DECODES = 150
_RANDOM_PROMPTS = 300
_RANDOM_MIXED = 1000
_OFF_GRID = 200
#: Bases and linear terms are fitted alternately; the second round changes almost nothing.
_TURNS = 3
#: Mean error of the linear terms in a phase of the fitted steps, in %, above which its residuals are sampled.
_LINEAR_ERROR = 2.0

_FORM = Form(base_knots=(1.0,), longest_knots=(), graph_tokens=0)
#: The form has one column for its base, here the base of decodes in mixed steps; then the linear columns.
_MIXED = 0
_AT = {name: 1 + index for index, name in enumerate(LINEAR)}


@dataclass(frozen=True, slots=True)
class _Bases:
    """(count, ms) points of the bases: decode steps, steps with a chunk, and steps whose chunk has a past.

    The base of chunks without a past includes all of a prompt's time, with its products of tokens.
    """

    decode: dict[int, float]
    chunk: dict[int, float]
    past: dict[int, float]

    def ms(self, rows: IterationRows) -> NDArray[np.float64]:
        """Return the base time of each row's step in ms, between the sampled points; shape (rows,)."""
        tokens, n = rows.prefill_tokens + rows.decode_sequences, rows.decode_sequences
        chunk = np.where(rows.past_tokens > 0, _between(self.past, tokens), _between(self.chunk, tokens))
        return np.where(rows.prefill_tokens > 0, chunk, _between(self.decode, n))


def sampled_step_time(kernels: MeasuredKernels) -> tuple[SampledStepTime, list[PhaseError]]:
    """Return the table of a deployment's kernels, and its error by phase at steps that were not sampled."""
    with kernels.asked() as step_ms:
        chunk = breakpoints(lambda new: step_ms(new, 0, 0, 0), _TOKENS)
    past_rows = kernels.rows(
        np.array([(new, past, 0, 0) for new in chunk for past in _PAST if past < _PAST_TIMES * new])
    )
    sequences = range(1, _SEQUENCES + 1)
    decode_rows = kernels.rows(
        np.array([(0, 0, n, n * kv) for n in sequences for kv in _KV_EACH if n * kv <= _MOST_KV])
    )
    rows = kernels.rows(_random_steps("aiconfigurator.grid", _RANDOM_DECODES, _RANDOM_PROMPTS, _RANDOM_MIXED))
    columns = _columns(rows)
    bases = _Bases(_bases(decode_rows, np.zeros(len(decode_rows)), _decodes), chunk, chunk)
    for _ in range(_TURNS):
        found = solve(columns, rows, _FORM.floors, bases.ms(rows)).coefficients
        bases = replace(
            bases,
            decode=_bases(decode_rows, _columns(decode_rows) @ found, _decodes),
            past=_bases(past_rows, _columns(past_rows) @ found, _prompts),
        )
    model = SampledStepTime(_model(bases, found))
    if any(error.mape > _LINEAR_ERROR for error in phase_errors(rows, predict_ms(model, rows))):
        model = replace(model, residuals=sampled_residuals(kernels, model, _MOST_KV))
    unseen = kernels.rows(_random_steps("aiconfigurator.off-grid", _OFF_GRID, _OFF_GRID, _OFF_GRID))
    return model, phase_errors(unseen, predict_ms(model, unseen))


def _columns(rows: IterationRows) -> NDArray[np.float64]:
    """Return the form's columns that are not part of the bases."""
    columns = _FORM.columns(rows)
    chunked, tokens = rows.prefill_tokens > 0, rows.prefill_tokens + rows.decode_sequences
    columns[:, _MIXED] = chunked & (rows.decode_sequences > 0)
    # The two costs of KV are separate, while the second cost of a set is the additional cost in steps with a
    # chunk; decode sequences are in their base, and a chunk's base includes products of as many tokens as the
    # step has.
    columns[chunked, _AT["kv"]] = 0.0
    columns[:, _AT["sequence"]] = 0.0
    columns[chunked, _AT["pairs"]] -= tokens[chunked] ** 2 / 2e6
    return columns


def _bases(
    rows: IterationRows,
    linear_ms: NDArray[np.float64],
    count_of: Callable[[IterationRows], NDArray[np.float64]],
) -> dict[int, float]:
    """Return at each count the base of least relative error over its rows: a weighted median."""
    counts = count_of(rows)
    left = rows.iter_ms - linear_ms
    order = np.lexsort((left, counts))
    starts = np.flatnonzero(np.diff(counts[order], prepend=-1.0))
    found = {}
    for same_count in np.split(order, starts[1:]):
        weight = np.cumsum(1 / rows.iter_ms[same_count])
        middle = same_count[int(np.searchsorted(weight, weight[-1] / 2))]
        found[int(counts[middle])] = max(float(left[middle]), 0.0)
    return found


def _decodes(rows: IterationRows) -> NDArray[np.float64]:
    return rows.decode_sequences


def _prompts(rows: IterationRows) -> NDArray[np.float64]:
    return rows.prefill_tokens


def _model(bases: _Bases, found: NDArray[np.float64]) -> ParametricStepTime:
    """Return the coefficients; bases of chunks without the products that the table counts separately."""
    coefficients = found.copy()
    coefficients[_MIXED] = 0.0
    pairs_ms = found[_AT["pairs"]] / 2e6

    def points(base: dict[int, float], each_ms: float) -> Points:
        left = ((n, max(ms - each_ms * n * n, 0.0)) for n, ms in base.items())
        return tuple(Point(float(n), six_digits(ms)) for n, ms in left)

    return replace(
        _FORM.model(coefficients),
        base_points=points(bases.chunk, pairs_ms),
        past_points=points(bases.past, pairs_ms),
        decode_points=points(bases.decode, 0.0),
        beside_ms=six_digits(float(found[_MIXED])),
        kv_mixed_ms_per_thousand=six_digits(float(found[_AT["kv_mixed_extra"]])),
    )


def _between(base: dict[int, float], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.interp(counts, list(base), list(base.values())), np.float64)


def _random_steps(name: str, decodes: int, prompts: int, mixed: int) -> NDArray[np.int64]:
    """Return random decode steps, prompts and mixed steps, each quantity log-uniform over its range."""
    draw = stream(20261122, name)
    total = decodes + prompts + mixed

    def spread(least: int, most: int) -> NDArray[np.int64]:
        return np.exp(draw.uniform(np.log(least), np.log(most + 1), total)).astype(np.int64)

    new, n = spread(8, 8192), spread(1, 256)
    past = spread(64, 32_768) * (draw.random(total) < 0.5)
    kv = np.minimum(n * spread(16, 32_768), _MOST_KV)
    with_prompt = np.arange(total) >= decodes
    with_decodes = (np.arange(total) < decodes) | (np.arange(total) >= total - mixed)
    past = np.minimum(past, _PAST_TIMES * new)
    return np.stack((new * with_prompt, past * with_prompt, n * with_decodes, kv * with_decodes), axis=1)
