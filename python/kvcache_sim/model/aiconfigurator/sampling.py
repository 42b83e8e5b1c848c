"""The library's times at steps by their tokens and KV, put into the integer table's form, judged at others.

The base is the source's own at each token count where it bends: its kernels change at token counts, up and
down. What is linear (KV, new × past tokens, sequences, a constant of decodes beside a chunk) is fitted;
where that is not enough, what it misses is sampled (``residuals``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.aiconfigurator.kernels import MeasuredKernels
from kvcache_sim.model.aiconfigurator.sampled import SampledStepTime
from kvcache_sim.model.calibration.design import LINEAR, Form
from kvcache_sim.model.calibration.fit import predict_ms, solve
from kvcache_sim.model.calibration.rows import IterationRows, PhaseError, phase_errors
from kvcache_sim.model.parametric import ParametricStepTime, six_digits
from kvcache_sim.model.residual_grid import ResidualGrid, Residuals
from kvcache_sim.model.step_time import StepTime
from kvcache_sim.rng import stream

#: Between two bends the source is off the line by no more than this share, at the counts looked at.
_CLOSE = 0.004


def breakpoints(ms_of: Callable[[int], float], counts: Sequence[int]) -> dict[int, float]:
    """Return the ms at the given rising counts and at those between them that a straight line misses.

    Of each span the middle is looked at and both counts beside its ends: a kernel that changes does so right
    past a count it was tuned for, so these should be among those given. ``ms_of`` is called once a count, for
    a smooth source four times a span.
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


def _halves(least: int, most: int) -> tuple[int, ...]:
    """Return 1, and the powers of two from ``least`` to ``most`` with the middles between them."""
    powers = [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
    return (1, *sorted(n for power in powers for n in (power, power + power // 2) if 1 < n <= most))


_RESIDUAL_SEQUENCES = _halves(2, 512)
_CHUNKS = _halves(8, 16_384)
_RESIDUAL_TOKENS = _halves(64, 65_536)
#: The chunk beside which decodes are sampled.
_MIXED_CHUNK = 512


def sampled_residuals(kernels: MeasuredKernels, linear: StepTime, most_kv: int) -> Residuals:
    """Return what a linear model misses: decodes' KV, alone and beside a chunk, and a chunk's past.

    No step of more than ``most_kv`` tokens is asked for: there, as past a grid's borders, the rest is that of
    the nearest one.
    """

    def decodes(chunk: int) -> ResidualGrid:
        return _sampled(
            kernels, linear, _RESIDUAL_SEQUENCES, lambda n, each: (chunk, 0, n, n * min(each, most_kv // n))
        )

    past = _sampled(kernels, linear, _CHUNKS, lambda new, past: (new, past, 0, 0))
    return Residuals(decodes(0), decodes(_MIXED_CHUNK), past)


def _sampled(
    kernels: MeasuredKernels,
    linear: StepTime,
    counts: tuple[int, ...],
    step: Callable[[int, int], tuple[int, int, int, int]],
) -> ResidualGrid:
    rows = kernels.rows(
        np.array([step(count, tokens) for count in counts for tokens in _RESIDUAL_TOKENS], np.int64)
    )
    shape = (len(counts), len(_RESIDUAL_TOKENS))
    residual = np.rint((rows.iter_ms - predict_ms(linear, rows)).reshape(shape) * _NS_PER_MS).astype(np.int64)
    return ResidualGrid(counts, _RESIDUAL_TOKENS, tuple(map(tuple, residual.tolist())))


#: Each number of decode sequences up to it has a base of its own.
_SEQUENCES = 512
_KV_EACH = (16, 256, 1024, 4096, 16_384, 65_536)
#: Token counts of chunks between which bends are looked for.
_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_PAST = (64, 256, 1024, 4096, 16_384, 65_536)
#: No step of more KV than this is sampled: no GPU holds it.
_MOST_KV = 2_000_000
#: A past this many times a chunk, or more, is not sampled: no step is like that but the last of a prompt.
_PAST_TIMES = 512
_RANDOM_DECODES = 150
_RANDOM_PROMPTS = 300
_RANDOM_MIXED = 1000
_OFF_GRID = 200
#: Bases and what is linear are found in turn; the second round changes next to nothing.
_TURNS = 3
#: Where what is linear misses a phase of the steps it is fitted to by more, in % on average, its rest is
#: sampled.
_LINEAR_ERROR = 2.0

_FORM = Form(base_knots=(1.0,), longest_knots=(), graph_tokens=0)
#: The form has one column for its base, here that of decodes beside a chunk; then those that are linear.
_MIXED = 0
_AT = {name: 1 + index for index, name in enumerate(LINEAR)}


@dataclass(frozen=True, slots=True)
class _Bases:
    """(count, ms) points of the bases: decode steps, steps with a chunk, and those whose chunk has a past.

    That of chunks without a past holds all of a prompt's time, its products of tokens too.
    """

    decode: dict[int, float]
    chunk: dict[int, float]
    past: dict[int, float]

    def ms(self, rows: IterationRows) -> NDArray[np.float64]:
        """Return the base of each row."""
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
    rows = kernels.rows(
        _random_steps("aiconfigurator.grid", (_RANDOM_DECODES, _RANDOM_PROMPTS, _RANDOM_MIXED))
    )
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
    unseen = kernels.rows(_random_steps("aiconfigurator.off-grid", (_OFF_GRID, _OFF_GRID, _OFF_GRID)))
    return model, phase_errors(unseen, predict_ms(model, unseen))


def _columns(rows: IterationRows) -> NDArray[np.float64]:
    """Return the form's columns of what the bases do not hold."""
    columns = _FORM.columns(rows)
    chunked, tokens = rows.prefill_tokens > 0, rows.prefill_tokens + rows.decode_sequences
    columns[:, _MIXED] = chunked & (rows.decode_sequences > 0)
    # Two costs of KV apart, where a set's second is what steps with a chunk cost more; decodes' sequences
    # are in their base, and in a chunk's are products of as many tokens as the step has.
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
    for own in np.split(order, starts[1:]):
        weight = np.cumsum(1 / rows.iter_ms[own])
        middle = own[int(np.searchsorted(weight, weight[-1] / 2))]
        found[int(counts[middle])] = max(float(left[middle]), 0.0)
    return found


def _decodes(rows: IterationRows) -> NDArray[np.float64]:
    return rows.decode_sequences


def _prompts(rows: IterationRows) -> NDArray[np.float64]:
    return rows.prefill_tokens


def _model(bases: _Bases, found: NDArray[np.float64]) -> ParametricStepTime:
    """Return the coefficients; bases of chunks without the products that the table counts apart."""
    own = found.copy()
    own[_MIXED] = 0.0
    pairs_ms = found[_AT["pairs"]] / 2e6

    def points(base: dict[int, float], each_ms: float) -> tuple[tuple[float, float], ...]:
        left = ((n, max(ms - each_ms * n * n, 0.0)) for n, ms in base.items())
        return tuple((float(n), six_digits(ms)) for n, ms in left)

    return replace(
        _FORM.model(own),
        base_points=points(bases.chunk, pairs_ms),
        past_points=points(bases.past, pairs_ms),
        decode_points=points(bases.decode, 0.0),
        beside_ms=six_digits(float(found[_MIXED])),
        kv_mixed_ms_per_thousand=six_digits(float(found[_AT["kv_mixed_extra"]])),
    )


def _between(base: dict[int, float], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.interp(counts, list(base), list(base.values())), np.float64)


def _random_steps(name: str, counts: tuple[int, int, int]) -> NDArray[np.int64]:
    """Return so many decode steps, prompts and mixed steps, each figure spread evenly over its magnitudes."""
    draw = stream(20261122, name)
    decodes, _, mixed = counts
    total = sum(counts)

    def spread(least: int, most: int) -> NDArray[np.int64]:
        return np.exp(draw.uniform(np.log(least), np.log(most + 1), total)).astype(np.int64)

    new, n = spread(8, 8192), spread(1, 256)
    past = spread(64, 32_768) * (draw.random(total) < 0.5)
    kv = np.minimum(n * spread(16, 32_768), _MOST_KV)
    with_prompt = np.arange(total) >= decodes
    with_decodes = (np.arange(total) < decodes) | (np.arange(total) >= total - mixed)
    past = np.minimum(past, _PAST_TIMES * new)
    return np.stack((new * with_prompt, past * with_prompt, n * with_decodes, kv * with_decodes), axis=1)
