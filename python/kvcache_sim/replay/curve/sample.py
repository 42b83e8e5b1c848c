"""The curve from a sample of the ids (SHARDS, Waldspurger et al. 2015), with an error bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import CurveSample
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.curve.hits import CurveTotals, output_less
from kvcache_sim.replay.curve.steps import Int64s
from kvcache_sim.replay.prompt_blocks import PromptBlocks, cut_ids
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers.stream import RowStream

#: Disjoint groups of the sampled ids, whose spread gives the error.
GROUPS = 8
CONFIDENCE = 0.95
#: Fewest ids of a sample of fixed size: twice those that are counted exactly.
LEAST_IDS = 1 << 15
#: Sizes at which the groups are compared, in blocks that a group's sampled block stands for.
_NEAR = np.array([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0])


@dataclass(frozen=True, slots=True)
class SampledCurve:
    """Estimated hits in blocks at some capacities, and half the width of a 95 % interval of all at once.

    It comes from the spread of groups each an eighth of the sample, the largest at sizes within what one of
    their blocks stands for: they know distances no better. Sizes a factor of two apart are taken as
    independent and share the probability of an error (Bonferroni).
    """

    capacities: Int64s
    rate: float
    sampled_ids: int
    hit_blocks: NDArray[np.float64]
    error_blocks: NDArray[np.float64]


def check_rate(rate: float) -> None:
    """Raise ``UsageError`` for a rate that is no share of the ids."""
    if not 0 < rate < 1:
        raise UsageError(
            "sampling rate out of range",
            where="--sample",
            got=str(rate),
            expected=f"0 < rate < 1, or a number of ids from {LEAST_IDS:,}",
        )


def _values(names: NDArray[np.int64] | NDArray[np.uint64] | list[str] | list[int]) -> NDArray[np.uint64]:
    """Return the values by which a reader of rows samples ids of these names."""
    if isinstance(names, np.ndarray) and (not len(names) or names.min() >= 0):
        return names.astype(np.uint64)
    values = CurveSample.values_of([str(name) for name in names])
    for at, name in enumerate(names):
        if not isinstance(name, str) and 0 <= name < 1 << 64:
            values[at] = name
    return values


class Sample:
    """A sample of the ids whose hash falls below ``rate``; ``at`` estimates the curve, tail first.

    An id is taken with all its blocks in all requests and stands for the blocks up to the id taken before it
    in its prompt. Of the first ids of prompts, which many share, 16,384 are counted exactly.
    """

    def __init__(self, sample: CurveSample, rate: float, per_id: int) -> None:
        self._sample, self._rate, self._per_id = sample, rate, per_id
        self._ids, exact = sample.ids
        #: About as many blocks as the trace has.
        self.distinct_blocks = per_id * (exact + round((self._ids - exact) / rate))

    def at(self, capacities: Int64s) -> SampledCurve:
        """Return the estimate at some capacities."""
        rate = self._rate
        shifts = (_NEAR * GROUPS * self._per_id / rate).astype(np.int64)
        sizes = np.maximum(capacities + shifts[:, None], 0)
        every, index = np.unique(sizes, return_inverse=True)
        found = np.clip(np.array(self._sample.at(every), np.float64), 0.0, float(self._sample.totals[3]))
        near = found[:, index.reshape(sizes.shape)]
        spread = near[1:].std(axis=0, ddof=1).max(axis=0)
        octaves = int(capacities.max(initial=2) - 1).bit_length()
        error = student_t7((1 - CONFIDENCE) / max(1, octaves)) * spread / np.sqrt(GROUPS)
        return SampledCurve(capacities, rate, self._ids, near[0, len(_NEAR) // 2], error)


def sample_of_prompts(prompts: PromptBlocks, rate: float, seed: int) -> Sample:
    """Return the sample of a trace in memory, which is that of its rows."""
    check_rate(rate)
    sample = CurveSample(prompts.block_size_tokens, prompts.blocks_per_id, False, None, (rate, seed))
    trace = prompts.trace
    blocks = (prompts.blocks, prompts.private_blocks, prompts.limits)
    sample.feed_trace(blocks, trace.id_offsets, trace.block_ids, _values(trace.id_names))
    return Sample(sample, rate, prompts.blocks_per_id)


def sample_of_rows(
    rows: RowStream, request: ReplayRequest, rate: float, seed: int
) -> tuple[Sample, CurveTotals]:
    """Return the sample of a trace that is read row by row, and the trace's totals."""
    size = request.block_size_tokens
    per_id = cut_ids(rows.block_size, size)
    keep = request.last_partial == "keep"
    sample = CurveSample(size, per_id, keep, output_less(request), (rate, seed))
    rows.feed(sample)
    requests, tokens, references, _ = sample.totals
    totals = CurveTotals(rows.source, rows.sha256, requests, references, tokens)
    return Sample(sample, rate, per_id), totals


def student_t7(both_tails: float) -> float:
    """Return the value that Student's t with seven degrees of freedom exceeds, up or down, so often."""
    low, high = 0.0, 1e3
    for _ in range(60):
        t = (low + high) / 2
        cos = 1 / math.sqrt(1 + t * t / 7)
        sin = math.sqrt(1 - cos * cos)
        within = math.atan(t / math.sqrt(7)) + sin * (cos + 2 / 3 * cos**3 + 8 / 15 * cos**5)
        low, high = (t, high) if 1 - within * 2 / math.pi > both_tails else (low, t)
    return low
