"""The step-time form as a matrix: one column a coefficient, one row an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.calibration.rows import IterationRows
from kvcache_sim.model.cuda_graphs import padded_tokens
from kvcache_sim.model.parametric import ParametricStepTime

#: The columns after the ramps, in order.
LINEAR = ("kv", "kv_mixed_extra", "sequence", "sequence_mixed_extra", "pairs", "past")

_LONGEST_KNOTS = (1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0)
_KNOT_RATIO = 1.08
_ROWS_PER_KNOT = 8


@dataclass(frozen=True, slots=True)
class Either:
    """Columns of which only one group's sum counts, the larger: KV shared by all cores, or one sequence's."""

    shared: NDArray[np.intp]
    alone: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Form:
    """Where the piecewise-linear parts bend: the base by tokens, the longest sequence's by sequences.

    ``graph_tokens`` is the largest CUDA graph: counts are padded before anything is looked up.
    """

    base_knots: tuple[float, ...]
    longest_knots: tuple[float, ...]
    graph_tokens: int = 512

    def columns(self, rows: IterationRows) -> NDArray[np.float64]:
        """Return the matrix that ``FormSolver`` multiplies with the coefficients to get ms.

        Every coefficient being ≥ 0 makes the time monotone: a ramp's are the rises from knot to knot.
        """
        tokens, sequences = _padded(rows, self.graph_tokens)
        n, kv, new, past = rows.decode_sequences, rows.decode_kv_tokens, rows.prefill_tokens, rows.past_tokens
        chunks = np.maximum(rows.prefill_requests, 1)
        parts = [ramp(tokens, self.base_knots, goes_on=True)]
        if self.longest_knots:
            longest = np.where(n > 0, rows.decode_max_kv_tokens, 0.0) / 1e3
            parts.append(ramp(sequences, self.longest_knots, goes_on=False) * longest[:, None])
        # Only sums are known of several chunks in a step: equal ones are assumed.
        pairs = new * past / chunks + new * new / (2 * chunks)
        mixed = new > 0
        linear = (kv / 1e3, mixed * kv / 1e3, n, mixed * n, pairs / 1e6, past / 1e3)
        return np.concatenate((*parts, np.stack(linear, axis=1)), axis=1)

    @property
    def either(self) -> Either:
        """The columns of attention over all KV, and those of the longest sequence."""
        bends, levels = len(self.base_knots), len(self.longest_knots)
        first = bends + levels
        kv, extra = LINEAR.index("kv"), LINEAR.index("kv_mixed_extra")
        return Either(np.array([first + kv, first + extra]), np.arange(bends, first))

    def model(self, coefficients: NDArray[np.float64]) -> ParametricStepTime:
        """Return the step-time model of fitted coefficients."""
        bends = len(self.base_knots)
        rises, longest = coefficients[:bends], coefficients[bends : bends + len(self.longest_knots)]
        value = dict(zip(LINEAR, coefficients[-len(LINEAR) :].tolist(), strict=True))
        return ParametricStepTime(
            base_points=_points(self.base_knots, rises),
            longest_points=_points(self.longest_knots, longest) if longest.any() else (),
            pairs_ms_per_million=_short(value["pairs"]),
            kv_ms_per_thousand=_short(value["kv"]),
            kv_mixed_ms_per_thousand=_short(value["kv"] + value["kv_mixed_extra"]),
            sequence_ms=_short(value["sequence"]),
            sequence_mixed_ms=_short(value["sequence"] + value["sequence_mixed_extra"]),
            past_ms_per_thousand=_short(value["past"]),
            graph_tokens=self.graph_tokens,
        )


def form_for(rows: IterationRows, graph_tokens: int = 512) -> Form:
    """Return the form whose knots these rows can carry: each span between two holds at least eight rows.

    The part of the longest sequence is left out where no row tells it from the mean.
    """
    tokens, sequences = _padded(rows, graph_tokens)
    n = np.maximum(rows.decode_sequences, 1)
    uneven = rows.decode_max_kv_tokens > 1.01 * rows.decode_kv_tokens / n
    levels: tuple[float, ...] = ()
    if uneven.any():
        present = set(sequences[rows.decode_sequences > 0].tolist())
        levels = tuple(k for k in _LONGEST_KNOTS if k in present)
    return Form(_knots(np.sort(tokens)), levels, graph_tokens)


def form_through(rows: IterationRows, graph_tokens: int = 512) -> Form:
    """Return the form that bends at every token count measured."""
    tokens, _ = _padded(rows, graph_tokens)
    return Form(tuple(np.unique(tokens).tolist()), form_for(rows, graph_tokens).longest_knots, graph_tokens)


def ramp(x: NDArray[np.float64], knots: tuple[float, ...], goes_on: bool) -> NDArray[np.float64]:
    """Return the monotone piecewise-linear basis: 1, then one column a span, rising from 0 to 1 over it.

    The last column keeps rising past the last knot when ``goes_on``.
    """
    columns = [np.ones_like(x)]
    for left, right in pairwise(knots):
        rise = np.maximum((x - left) / (right - left), 0.0)
        columns.append(rise if goes_on and right == knots[-1] else np.minimum(rise, 1.0))
    return np.stack(columns, axis=1)


def _knots(tokens: NDArray[np.float64]) -> tuple[float, ...]:
    knots, since = [float(tokens[0])], 0
    values, counts = np.unique(tokens, return_counts=True)
    for value, count in zip(values[1:].tolist(), counts[1:].tolist(), strict=True):
        since += count
        if since >= _ROWS_PER_KNOT and value >= knots[-1] * _KNOT_RATIO:
            knots, since = [*knots, value], 0
    if len(knots) > 1 and knots[-1] < tokens[-1]:
        knots[-1] = float(tokens[-1])
    return tuple(knots)


def _padded(rows: IterationRows, graph_tokens: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the padded tokens of each row, and its padded decode sequences."""
    tokens = (rows.prefill_tokens + rows.decode_sequences).astype(np.int64)
    padded = padded_tokens(graph_tokens, int(tokens.max(initial=1))).astype(np.float64)
    return padded[tokens], padded[rows.decode_sequences.astype(np.int64)]


def _points(knots: tuple[float, ...], rises: NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
    return tuple((k, _short(y)) for k, y in zip(knots, np.cumsum(rises).tolist(), strict=True))


def _short(value: float) -> float:
    return float(f"{value:.6g}")
