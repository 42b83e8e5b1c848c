"""The curve from a sample of the ids (SHARDS, Waldspurger et al. 2015), with an error bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import CurveSample
from kvcache_sim.errors import UsageError
from kvcache_sim.replay.curve.hits import CurveTotals, output_less
from kvcache_sim.replay.curve.steps import Int64s
from kvcache_sim.replay.prompt_blocks import PromptBlocks, cut_ids
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers.stream import RowStream

#: Two-sided 95 % of Student's t with seven degrees of freedom: eight disjoint groups of ids give the error.
STUDENT_T = 2.365


@dataclass(frozen=True, slots=True)
class SampledCurve:
    """Estimated hits in blocks at some capacities, and half the width of a 95 % interval.

    The bound comes from the spread of groups each an eighth of the sample: it is wide rather than narrow, for
    a group samples more coarsely than the whole.
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
            "sampling rate out of range", where="--sample", got=str(rate), expected="0 < rate < 1"
        )


def sampled_curve(prompts: PromptBlocks, capacities: Int64s, rate: float, seed: int) -> SampledCurve:
    """Estimate the curve from the ids whose hash falls below ``rate``; touch order is tail first.

    An id is taken with all its blocks in all requests and stands for the blocks up to the id taken before it
    in its prompt. Of the first ids of prompts, which many share, 16,384 are counted exactly.
    """
    check_rate(rate)
    sample = CurveSample(prompts.block_size_tokens, prompts.blocks_per_id, False, None, (rate, seed))
    trace = prompts.trace
    blocks = (prompts.blocks, prompts.private_blocks, prompts.limits)
    named = trace.id_names
    names = np.empty(0, np.uint64) if isinstance(named, list) else named.astype(np.uint64)
    sample.feed_trace(blocks, trace.id_offsets, trace.block_ids, names)
    return _estimate(sample, capacities, rate)


class SampledRows:
    """The sample of a trace that is read row by row; ``at`` estimates its curve."""

    def __init__(self, rows: RowStream, request: ReplayRequest, rate: float, seed: int) -> None:
        size = request.block_size_tokens
        keep = request.last_partial == "keep"
        per_id = cut_ids(rows.block_size, size)
        self._sample = CurveSample(size, per_id, keep, output_less(request), (rate, seed))
        self._rate = rate
        rows.feed(self._sample)
        requests, tokens, references, _, ids = self._sample.totals
        self.totals = CurveTotals(rows.source, rows.sha256, requests, references, tokens)
        #: About as many blocks as the trace has.
        self.distinct_blocks = round(ids * per_id / rate)

    def at(self, capacities: Int64s) -> SampledCurve:
        """Return the estimate at some capacities."""
        return _estimate(self._sample, capacities, self._rate)


def _estimate(sample: CurveSample, capacities: Int64s, rate: float) -> SampledCurve:
    order = np.argsort(capacities, kind="stable")
    ranks = np.argsort(order, kind="stable")
    countable, ids = sample.totals[3:]
    found = np.clip(np.array(sample.at(capacities[order]), np.float64), 0.0, float(countable))[:, ranks]
    error = STUDENT_T * found[1:].std(axis=0, ddof=1) / np.sqrt(len(found) - 1)
    return SampledCurve(capacities, rate, ids, found[0], error)
