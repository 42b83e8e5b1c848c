"""The parametric source: step time from a few fitted coefficients, padded to CUDA graphs."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import check_keys
from kvcache_sim.model.points import Point, Points
from kvcache_sim.model.shared_time import SharedTime
from kvcache_sim.model.step_time import StepTime, StepTimeTable


def capture_sizes(largest: int) -> NDArray[np.int64]:
    """Return vLLM v1's captured sizes up to ``largest``: 1, 2, 4, 8, 16, 24, … by 8, from 256 by 16."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return np.array([size for size in sizes if size <= largest], np.int64)


def padded_tokens(largest: int, max_tokens: int) -> NDArray[np.int64]:
    """Return, for 0 … ``max_tokens`` tokens, the tokens that the step really runs: the next captured size.

    Counts past the largest captured size run unpadded (vLLM v1 pads every step whose tokens fit a graph,
    mixed steps too). 0 stays 0.
    """
    tokens = np.arange(max_tokens + 1, dtype=np.int64)
    sizes = np.concatenate((np.zeros(1, np.int64), capture_sizes(largest)))
    within = tokens <= sizes[-1]
    tokens[within] = sizes[np.searchsorted(sizes, tokens[within])]
    return tokens


_NS_PER_MS = 1e6
_FS_PER_MS = 1e12


class ParametricStepTime(Value, StepTime):
    """A step's time as a base by token count and linear terms, all in ms.

    ``T = fixed + base(N) + max(attention, scan·longest/10³) + rest``, where ``rest = sequence·n + past·Σ
    past/10³ + idle·n·Σ new/10⁶`` (pure decode steps: ``+ decode_extra``; with a chunk and decodes: ``+
    beside``) and ``attention = pairs·Σ new·(past+new/2)/10⁶ + max(kv·ΣKV, longest(n)·max)/10³``. N counts all
    tokens of the step, n its decode sequences, ΣKV the cached tokens of these, max those of the longest.
    ``base(N) = (weights^p + (token·N)^p)^(1/p)`` joins the time to read the weights with the time to compute
    N tokens, unless ``base_points`` gives (tokens, ms) points to interpolate. ``decode_points`` are the same
    for pure decode steps, by sequences: these replay a captured graph, other steps do not. The base of other
    steps is then no smaller at these counts, and no decode base exceeds it. ``past_points`` are a base for
    steps whose chunk has a past. If ``decode_extra`` would make a step shorter by adding a chunk, the base of
    other steps is raised. ``kv`` and ``sequence`` have one value for pure decode steps and one, no smaller,
    for steps with a prefill chunk. ``spread`` (α) adds that share of the additional time that all sequences
    would take at the longest length in decode steps, ``spread_mixed`` in steps with a chunk. ``idle`` is the
    cost of a decode sequence per token of a chunk in the same step: the grid of a kernel for all sequences
    has the chunk's tiles for each of them, most of them idle. ``longest(n)``, by (sequences, ms per thousand
    tokens) points and constant past the last point, is a lower bound of attention: its longest sequence
    alone, on the cores that n sequences leave it. From ``unsplit_sequences`` sequences on, as padded, each KV
    head of a sequence has one thread block. Then kv·ΣKV is followed by ``unsplit`` per thousand tokens of the
    longest that are left when all others have ended: all but ``unsplit_hidden`` times the mean. Attention
    kernels work in tiles: a decode sequence's KV counts as at least ``least_kv_tokens``, a chunk's tokens
    against its past as ``least_query_tokens``. In steps with a chunk one core reads each sequence to its end:
    attention takes at least ``scan`` times the longest KV, a chunk's own included. Steps of up to
    ``graph_tokens`` tokens are padded to the next captured size (0: never). Launch times are separate from
    kernels, as in ``StepTimeTable``: ``launch`` past these tokens, ``launch_pieces`` with a chunk up to them,
    ``launch_graph`` in decode steps, ``launch_sequence`` additionally per decode sequence, and ``tail``,
    ``tail_sequence`` after a launch that the GPU has waited for. ``shared_points``, by the tokens of all
    ``shared_ranks`` ranks, are the time of the work that these do together, on top of a rank's own base.
    """

    weights_ms: float = 0.0
    token_ms: float = 0.0
    exponent: float = 1.0
    fixed_ms: float = 0.0
    pairs_ms_per_million: float = 0.0
    kv_ms_per_thousand: float = 0.0
    kv_mixed_ms_per_thousand: float = 0.0
    sequence_ms: float = 0.0
    sequence_mixed_ms: float = 0.0
    past_ms_per_thousand: float = 0.0
    scan_ms_per_thousand: float = 0.0
    decode_extra_ms: float = 0.0
    beside_ms: float = 0.0
    spread: float = 0.0
    spread_mixed: float = 0.0
    unsplit_sequences: int = 0
    unsplit_ms_per_thousand: float = 0.0
    unsplit_hidden: float = 0.0
    idle_ms_per_million: float = 0.0
    least_kv_tokens: int = 0
    least_query_tokens: int = 0
    graph_tokens: int = 512
    launch_ms: float = 0.0
    launch_pieces_ms: float = 0.0
    launch_graph_ms: float = 0.0
    launch_sequence_ms: float = 0.0
    tail_ms: float = 0.0
    tail_sequence_ms: float = 0.0
    base_points: Points = ()
    decode_points: Points = ()
    past_points: Points = ()
    longest_points: Points = ()
    shared_ranks: int = 0
    shared_points: Points = ()

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers, for steps of up to ``max_tokens`` and ``max_sequences``."""
        return _lowered(self, max_tokens, max_sequences)

    def base_ms(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ``fixed + base(N)`` in ms for each token count, before padding; 0 for no tokens."""
        n = tokens.astype(np.float64)
        if self.base_points:
            base = points_ms(self.base_points, n)
        else:
            base = (self.weights_ms**self.exponent + (self.token_ms * n) ** self.exponent) ** (
                1 / self.exponent
            )
        if self.decode_points:
            base = np.maximum(base, np.interp(n, *np.array(self.decode_points).T))
        return np.where(tokens > 0, self.fixed_ms + base, 0.0)

    def decode_base_ms(self, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the same for pure decode steps by number of sequences, with their additional time."""
        base = self.base_ms(sequences)
        if self.decode_points:
            decode = self.fixed_ms + points_ms(self.decode_points, sequences)
            base = np.minimum(decode, base)
        return np.where(sequences > 0, base + self.decode_extra_ms, 0.0)


@lru_cache(maxsize=32)
def _lowered(model: ParametricStepTime, max_tokens: int, max_sequences: int) -> StepTimeTable:
    padded = padded_tokens(model.graph_tokens, max(max_tokens, max_sequences))
    base = np.rint(model.base_ms(padded) * _NS_PER_MS).astype(np.int64)
    decode_base = np.rint(model.decode_base_ms(padded) * _NS_PER_MS).astype(np.int64)
    longest = np.zeros(max_sequences + 1, np.int64)
    if model.longest_points:
        x, y = np.array(model.longest_points).T
        longest = np.rint(np.interp(padded[: max_sequences + 1], x, y) * _FS_PER_MS / 1e3).astype(np.int64)
    # The table has one coefficient per sequence, that of mixed steps; a decode step's base subtracts the
    # difference. It is in whole nanoseconds, so that rounding cannot make a longer batch a nanosecond
    # shorter.
    mixed_extra_ns = max(0, round((model.sequence_mixed_ms - model.sequence_ms) * _NS_PER_MS))
    decode_base -= mixed_extra_ns * np.arange(len(padded), dtype=np.int64)
    # A step of these sequences and one token of a chunk takes no less than the sequences alone.
    base[1:] = np.maximum(base[1:], np.maximum.accumulate(decode_base)[:-1])
    past_base = np.zeros(0, np.int64)
    if model.past_points:
        past_ms = np.where(padded > 0, model.fixed_ms + points_ms(model.past_points, padded), 0.0)
        past_base = np.rint(past_ms * _NS_PER_MS).astype(np.int64)[: max_tokens + 1]
    shared = _shared(model, padded, max_tokens)
    base, decode_base = base + shared.even(len(base)), decode_base + shared.even(len(decode_base))
    past_base = past_base + shared.even(len(past_base))
    base.flags.writeable = False
    kv, kv_mixed = model.kv_ms_per_thousand, max(model.kv_mixed_ms_per_thousand, model.kv_ms_per_thousand)
    return StepTimeTable(
        base_ns=base[: max_tokens + 1],
        decode_base_ns=decode_base[: max_sequences + 1],
        pair_half_fs=round(model.pairs_ms_per_million * _FS_PER_MS / 1e6 / 2),
        kv_decode_fs=round(kv * _FS_PER_MS / 1e3),
        kv_mixed_fs=round(kv_mixed * _FS_PER_MS / 1e3),
        sequence_fs=round(model.sequence_ms * _FS_PER_MS) + mixed_extra_ns * 1_000_000,
        past_fs=round(model.past_ms_per_thousand * _FS_PER_MS / 1e3),
        spread_decode_fs=round(model.spread * kv * _FS_PER_MS / 1e3),
        spread_mixed_fs=round(model.spread_mixed * kv_mixed * _FS_PER_MS / 1e3),
        idle_fs=round(model.idle_ms_per_million * _FS_PER_MS / 1e6),
        alongside_fs=round(model.beside_ms * _FS_PER_MS),
        scan_fs=round(model.scan_ms_per_thousand * _FS_PER_MS / 1e3),
        least_kv_tokens=model.least_kv_tokens,
        least_query_tokens=model.least_query_tokens,
        longest_fs=longest,
        **_unsplit(model, padded[: max_sequences + 1]),
        past_base_ns=past_base,
        shared=shared,
        **_launches(model),
    )


def _shared(model: ParametricStepTime, padded: NDArray[np.int64], max_tokens: int) -> SharedTime:
    """Return the time that all ranks take together, by the tokens of the largest one and of all."""
    if not model.shared_points:
        return SharedTime()
    ranks = model.shared_ranks

    def at(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        ms = np.where(tokens > 0, points_ms(model.shared_points, tokens), 0.0)
        return np.rint(ms * _NS_PER_MS).astype(np.int64)

    held = padded[: min(model.graph_tokens, max_tokens) + 1]
    return SharedTime(ranks, at(ranks * held), at(np.arange(ranks * max_tokens + 1)))


def _unsplit(model: ParametricStepTime, padded: NDArray[np.int64]) -> dict[str, Any]:
    """Return the table's terms of unsplit KV; empty if no number of sequences reaches the threshold."""
    first = int(np.searchsorted(padded, model.unsplit_sequences))
    if model.unsplit_sequences < 1 or first == len(padded):
        return {}
    # A token of a shorter sequence adds its kv and hides a part of the longest: never less in all.
    most_fs = round(model.kv_ms_per_thousand * _FS_PER_MS / 1e3) * first
    own_fs = model.unsplit_ms_per_thousand * _FS_PER_MS / 1e3
    hidden_fs = min(round(own_fs * model.unsplit_hidden), most_fs)
    return {"unsplit_sequences": first, "unsplit_fs": round(own_fs), "unsplit_hidden_fs": hidden_fs}


def _launches(model: ParametricStepTime) -> dict[str, Any]:
    """Return the table's launch terms; empty if launches are not modeled separately."""
    given_ms = {
        "launch_ns": model.launch_ms,
        "pieces_launch_ns": model.launch_pieces_ms,
        "graph_launch_ns": model.launch_graph_ms,
        "launch_sequence_ns": model.launch_sequence_ms,
        "tail_ns": model.tail_ms,
        "tail_sequence_ns": model.tail_sequence_ms,
    }
    if not any(given_ms.values()):
        return {}
    held = {"captured_tokens": model.graph_tokens}
    return held | {name: round(ms * _NS_PER_MS) for name, ms in given_ms.items()}


def six_digits(value: float) -> float:
    """Return a coefficient rounded to six digits, as in model files."""
    return float(f"{value:.6g}")


_WHOLE = ("graph_tokens", "least_kv_tokens", "least_query_tokens", "shared_ranks", "unsplit_sequences")


def parametric_step_time(coefficients: dict[str, Any], where: str) -> ParametricStepTime:
    """Return the model of a coefficient table in model-file form.

    Raises UsageError, naming ``where``, for an unknown or missing key, a value that is negative or not
    finite, an exponent below 1, or base points that do not rise.
    """
    number = (int, float)
    known: dict[str, type | tuple[type, ...]] = dict.fromkeys(ParametricStepTime.__struct_fields__, number)
    known |= dict.fromkeys(_WHOLE, int)
    known |= {key: list for key in known if key.endswith("_points")}
    check_keys(coefficients, known, where)
    values = {key: value for key, value in coefficients.items() if not key.endswith("_points")}
    base = _points(coefficients, "base_points", where)
    for key in ("weights_ms", "token_ms", "exponent"):
        if key not in values and not base:
            raise UsageError(f"{key} is missing", where=where)
    for key, value in values.items():
        if value < (1 if key == "exponent" else 0):
            raise UsageError(f"{key} is too small", where=where, got=str(value))
    shared = _points(coefficients, "shared_points", where)
    if bool(shared) != (values.get("shared_ranks", 0) > 1):
        raise UsageError("shared_points and shared_ranks above 1 go together", where=where)
    for key in ("spread", "spread_mixed"):
        if values.get(key, 0) > 1:
            raise UsageError(f"{key} is a share, at most 1", where=where, got=str(values[key]))
    longest = _points(coefficients, "longest_points", where)
    decode = _points(coefficients, "decode_points", where)
    past = _points(coefficients, "past_points", where)
    return ParametricStepTime(
        base_points=base,
        decode_points=decode,
        past_points=past,
        longest_points=longest,
        shared_points=shared,
        **values,
    )


def points_ms(points: Points, counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ms of (count, ms) points interpolated linearly, extrapolated by the last octave's slope.

    A single tile may lie between the last two points. The extrapolation never falls.
    """
    x, y = np.array(points).T
    slope = (y[-1] - float(np.interp(x[-1] / 2, x, y))) / (x[-1] / 2) if len(x) > 1 else 0.0
    return np.asarray(np.interp(counts, x, y) + np.maximum(counts - x[-1], 0.0) * max(slope, 0.0), np.float64)


def _points(coefficients: dict[str, Any], key: str, where: str) -> Points:
    if key not in coefficients:
        return ()
    try:
        points = tuple([Point(float(x), float(y)) for x, y in coefficients.get(key, ())])
    except (TypeError, ValueError):
        raise UsageError(f"{key} must be pairs of a count and ms", where=where) from None
    pairs = [a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(points)]
    if not all(pairs + [0 <= y < float("inf") for _, y in points]):
        raise UsageError(f"{key} must rise in its counts and never fall in ms", where=where)
    return points
