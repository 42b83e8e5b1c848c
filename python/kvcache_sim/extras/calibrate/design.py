"""The step-time form as a matrix: one column per coefficient, one row per iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.model.parametric import ParametricStepTime, padded_tokens, six_digits
from kvcache_sim.model.points import Point, Points

#: The columns after the ramps, in order.
LINEAR = ("kv", "kv_mixed_extra", "sequence", "sequence_mixed_extra", "pairs", "past", "idle", "scan")

#: The columns of a launched base: a line up to the largest graph, then a constant or a line; slopes are per
#: thousand tokens.
_LAUNCHED = ("held", "held_slope", "launch", "fixed", "slope")
#: The last point of a launched base, past all real steps: further points are on the line through it.
_LAST_TOKENS = 32_768.0

_LONGEST_KNOTS = (1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0)
_KNOT_RATIO = 1.08
_ROWS_PER_KNOT = 8


@dataclass(frozen=True, slots=True)
class Floors:
    """Columns of which only the larger sum counts: attention is max(max(shared, alone) + pairs, scan).

    ``shared`` is all KV on all cores, ``alone`` the longest sequence on its share of the cores, ``scan`` a
    single core that reads the longest KV to its end. The base of steps without a CUDA graph is max(launch,
    kernels).
    """

    shared: NDArray[np.intp]
    alone: NDArray[np.intp]
    pairs: NDArray[np.intp]
    scan: NDArray[np.intp]
    launch: NDArray[np.intp]
    kernels: NDArray[np.intp]

    @property
    def parts(self) -> tuple[NDArray[np.intp], ...]:
        """The six groups of columns, in order."""
        return self.shared, self.alone, self.pairs, self.scan, self.launch, self.kernels

    def rest(self, columns: int) -> NDArray[np.intp]:
        """Return the columns, of ``columns`` in total, that belong to none of the groups."""
        return np.delete(np.arange(columns), np.concatenate(self.parts))


@dataclass(frozen=True, slots=True)
class Form:
    """Breakpoints of the piecewise-linear parts: the base by tokens, the longest sequence by sequences.

    ``graph_tokens`` is the largest CUDA graph: counts are padded before any lookup. ``scans`` is True if the
    rows can identify a scan. ``measured`` holds (tokens, ms) points of a base that was measured separately.
    Then only a constant on top of it is fitted, and the additional time of decode steps in a last column;
    there are no knots. ``decode_knots``, if any, belong to a base of pure decode steps, separate from steps
    with a prefill chunk. If these are ``launched``, their base has no knots: up to ``graph_tokens`` tokens it
    is a line, above them the larger of a constant, the launch of all kernels, and a line, the kernels.
    """

    base_knots: tuple[float, ...]
    longest_knots: tuple[float, ...]
    graph_tokens: int = 512
    least_kv_tokens: int = 0
    least_query_tokens: int = 0
    scans: bool = False
    decode_knots: tuple[float, ...] = ()
    measured: Points = ()
    launched: bool = False

    def columns(self, rows: IterationRows) -> NDArray[np.float64]:
        """Return the matrix that ``FormSolver`` multiplies by the coefficients to get ms.

        Time is monotone if all coefficients are ≥ 0: the coefficients of a ramp are the increases from knot
        to knot.
        """
        tokens, sequences = padded_rows(rows, self.graph_tokens)
        n, new, past = rows.decode_sequences, rows.prefill_tokens, rows.past_tokens
        kv = np.maximum(rows.decode_kv_tokens, self.least_kv_tokens * n)
        chunks = np.maximum(rows.prefill_requests, 1)
        mixed = new > 0
        if self.launched:
            base = _launch_columns(tokens, self.graph_tokens)
        else:
            base = ramp(tokens, self.base_knots or (1.0,), extrapolates=True)
        if self.decode_knots:
            base *= mixed[:, None]
        parts = [base]
        if self.longest_knots:
            longest = np.where(n > 0, rows.decode_max_kv_tokens, 0.0) / 1e3
            parts.append(ramp(sequences, self.longest_knots, extrapolates=False) * longest[:, None])
        # Only sums are known of several chunks in a step: equal chunks are assumed.
        filled = np.maximum(new, mixed * self.least_query_tokens * chunks)
        pairs = filled * past / chunks + new * new / (2 * chunks)
        scan = self.scans * mixed * np.maximum((past + new) / chunks, rows.decode_max_kv_tokens)
        idle = self.scans * n * new
        linear = (kv / 1e3, mixed * kv / 1e3, n, mixed * n, pairs / 1e6, past / 1e3, idle / 1e6, scan / 1e3)
        parts.append(np.stack(linear, axis=1))
        if self.decode_knots:
            parts.append(ramp(sequences, self.decode_knots, extrapolates=True) * ~mixed[:, None])
        if self.measured:
            parts.append((~mixed[:, None]).astype(np.float64))
        return np.concatenate(parts, axis=1)

    def known_ms(self, rows: IterationRows) -> NDArray[np.float64]:
        """Return the separately measured part of each row; zeros if there is none."""
        if not self.measured:
            return np.zeros(len(rows))
        x, y = np.array(self.measured).T
        return np.asarray(np.interp(padded_rows(rows, self.graph_tokens)[0], x, y), np.float64)

    @property
    def breakpoints(self) -> int:
        """The number of columns of the base of steps with a chunk."""
        return len(_LAUNCHED) if self.launched else len(self.base_knots) or 1

    @property
    def floors(self) -> Floors:
        """The columns of the parts of attention, and of a launched base."""
        breakpoints, levels = self.breakpoints, len(self.longest_knots)
        at = {name: breakpoints + levels + position for position, name in enumerate(LINEAR)}
        shared = np.array([at["kv"], at["kv_mixed_extra"]])
        alone = np.arange(breakpoints, breakpoints + levels)
        positions = [_LAUNCHED.index(name) for name in ("launch", "fixed", "slope")] if self.launched else []
        launch, kernels = np.array(positions[:1], np.intp), np.array(positions[1:], np.intp)
        return Floors(shared, alone, np.array([at["pairs"]]), np.array([at["scan"]]), launch, kernels)

    def model(self, coefficients: NDArray[np.float64]) -> ParametricStepTime:
        """Return the step-time model of fitted coefficients."""
        breakpoints = self.breakpoints
        rises, longest = (
            coefficients[:breakpoints],
            coefficients[breakpoints : breakpoints + len(self.longest_knots)],
        )
        on_top = float(rises[0])
        base = tuple(Point(tokens, six_digits(ms + on_top)) for tokens, ms in self.measured)
        if self.launched:
            base = _launched_points(rises, float(self.graph_tokens))
        linear_at = breakpoints + len(self.longest_knots)
        linear = coefficients[linear_at : linear_at + len(LINEAR)]
        value = dict(zip(LINEAR, linear.tolist(), strict=True))
        decode = coefficients[linear_at + len(LINEAR) :][: len(self.decode_knots)]
        return ParametricStepTime(
            base_points=base or _points(self.base_knots, rises),
            decode_points=_continued(_points(self.decode_knots, decode)),
            longest_points=_points(self.longest_knots, longest) if longest.any() else (),
            pairs_ms_per_million=six_digits(value["pairs"]),
            kv_ms_per_thousand=six_digits(value["kv"]),
            kv_mixed_ms_per_thousand=six_digits(value["kv"] + value["kv_mixed_extra"]),
            sequence_ms=six_digits(value["sequence"]),
            sequence_mixed_ms=six_digits(value["sequence"] + value["sequence_mixed_extra"]),
            past_ms_per_thousand=six_digits(value["past"]),
            idle_ms_per_million=six_digits(value["idle"]),
            scan_ms_per_thousand=six_digits(value["scan"]),
            decode_extra_ms=six_digits(float(coefficients[-1])) if self.measured else 0.0,
            least_kv_tokens=self.least_kv_tokens,
            least_query_tokens=self.least_query_tokens,
            graph_tokens=self.graph_tokens,
        )


def form_for(rows: IterationRows, graph_tokens: int = 512, measured: Points = ()) -> Form:
    """Return the form with as many knots as the rows support: at least eight rows between two knots.

    The cost of the longest sequence is left out if no row distinguishes it from the mean. The scan replaces
    it if lengths are equal and chunks have a past or run together with decodes.
    """
    tokens, sequences = padded_rows(rows, graph_tokens)
    n = np.maximum(rows.decode_sequences, 1)
    uneven = rows.decode_max_kv_tokens > 1.01 * rows.decode_kv_tokens / n
    levels: tuple[float, ...] = ()
    if uneven.any():
        present = set(sequences[rows.decode_sequences > 0].tolist())
        levels = tuple(k for k in _LONGEST_KNOTS if k in present)
    chunked = rows.prefill_tokens > 0
    scans = not levels and bool((chunked & ((rows.past_tokens > 0) | (rows.decode_sequences > 0))).any())
    knots = () if measured else _knots(np.sort(tokens))
    return Form(knots, levels, graph_tokens, scans=scans, measured=measured)


def form_apart(rows: IterationRows, graph_tokens: int = 512) -> Form:
    """Return the form with separate bases for pure decode steps and for steps with a prefill chunk.

    A decode step replays one captured graph. A chunk's step is launched in pieces up to ``graph_tokens`` and
    kernel by kernel above, so its base has knots on both sides of that border.
    """
    form = form_for(rows, graph_tokens)
    chunked = rows.prefill_tokens > 0
    tokens, sequences = padded_rows(rows, graph_tokens)
    base = _knots(np.sort(tokens[chunked]))
    return replace(
        form,
        base_knots=_with_border(base, float(graph_tokens), tokens[chunked]),
        decode_knots=_knots(np.sort(sequences[~chunked])),
    )


def form_launched(rows: IterationRows) -> Form:
    """Return ``form_apart`` with the base of chunk steps as the launch of kernels or the kernels themselves.

    It has five coefficients whatever the rows: a few tens of rows determine them.
    """
    return replace(form_apart(rows), base_knots=(), launched=True)


def form_through(rows: IterationRows) -> Form:
    """Return the form with a knot at every measured token count."""
    form = form_for(rows)
    tokens, _ = padded_rows(rows, form.graph_tokens)
    return Form(tuple(np.unique(tokens).tolist()), form.longest_knots, form.graph_tokens)


def ramp(x: NDArray[np.float64], knots: tuple[float, ...], extrapolates: bool) -> NDArray[np.float64]:
    """Return the monotone piecewise-linear basis: 1, then one column per span, rising from 0 to 1 over it.

    The last column keeps rising past the last knot if ``extrapolates``.
    """
    columns = [np.ones_like(x)]
    for left, right in pairwise(knots):
        rise = np.maximum((x - left) / (right - left), 0.0)
        columns.append(rise if extrapolates and right == knots[-1] else np.minimum(rise, 1.0))
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


def _with_border(knots: tuple[float, ...], border: float, tokens: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the knots with the last knot up to ``border`` moved to it and one knot right past it."""
    below = tuple(knot for knot in knots if knot <= border)
    above = tuple(knot for knot in knots if knot > border + 1)
    if not below or not above or int((tokens > border).sum()) < _ROWS_PER_KNOT:
        return knots
    return (*(below[:-1] if len(below) > 1 or below[0] == border else below), border, border + 1, *above)


def padded_rows(rows: IterationRows, graph_tokens: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the padded tokens of each row, and its padded decode sequences."""
    tokens = (rows.prefill_tokens + rows.decode_sequences).astype(np.int64)
    padded = padded_tokens(graph_tokens, int(tokens.max(initial=1))).astype(np.float64)
    return padded[tokens], padded[rows.decode_sequences.astype(np.int64)]


def _launch_columns(tokens: NDArray[np.float64], graph_tokens: int) -> NDArray[np.float64]:
    held, long = tokens <= graph_tokens, tokens > graph_tokens
    thousands = tokens / 1e3
    return np.stack((held, held * thousands, long, long, long * thousands), axis=1, dtype=np.float64)


def _launched_points(rises: NDArray[np.float64], border: float) -> Points:
    """Return the points of a launched base; of a side without rows there are none."""
    held, held_slope, launch, fixed, slope = rises.tolist()
    points = [(n, held + held_slope * n / 1e3) for n in (1.0, border) if held or held_slope]
    meets = 1e3 * (launch - fixed) / slope if slope else 0.0
    longer = (
        border + 1,
        *((round(meets),) if border + 1 < round(meets) < _LAST_TOKENS else ()),
        _LAST_TOKENS,
    )
    if launch or fixed or slope:
        points += [(float(n), max(launch, fixed + slope * n / 1e3)) for n in longer]
    ms = np.maximum.accumulate([y for _, y in points] or [0.0]).tolist()
    return tuple(Point(n, six_digits(y)) for (n, _), y in zip(points or [(1.0, 0.0)], ms, strict=True))


def _points(knots: tuple[float, ...], rises: NDArray[np.float64]) -> Points:
    return tuple(Point(k, six_digits(y)) for k, y in zip(knots, np.cumsum(rises).tolist(), strict=True))


def _continued(points: Points) -> Points:
    """Return the points with an additional point at twice the last count, by the slope of the upper half.

    A line through the last two points would extrapolate their noise.
    """
    if len(points) < 2:
        return points
    x, y = np.array(points).T
    slope = (y[-1] - np.interp(x[-1] / 2, x, y)) / (x[-1] / 2)
    return (*points, Point(2 * points[-1].at, six_digits(y[-1] + slope * x[-1])))
