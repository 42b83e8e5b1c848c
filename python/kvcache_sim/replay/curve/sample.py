"""The curve from a sample of the ids (SHARDS, Waldspurger et al. 2015), with an error bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.replay.curve.hits import hit_curve
from kvcache_sim.replay.curve.steps import Int64s
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from kvcache_sim.rng import derive_seed

#: Number of disjoint groups of sampled ids; their spread gives the error.
GROUPS = 8
#: Two-sided 95 % of Student's t with GROUPS − 1 degrees of freedom.
STUDENT_T = 2.365


@dataclass(frozen=True, slots=True)
class SampledCurve:
    """Estimated hits in blocks at some capacities, and half the width of a 95 % interval.

    The bound comes from the spread of groups each a ``GROUPS``-th of the sample: it is wide rather than
    narrow, for a group samples more coarsely than the whole.
    """

    capacities: Int64s
    rate: float
    sampled_ids: int
    hit_blocks: NDArray[np.float64]
    error_blocks: NDArray[np.float64]


def sampled_curve(prompts: PromptBlocks, capacities: Int64s, rate: float, seed: int) -> SampledCurve:
    """Estimate the curve from the ids whose hash falls below ``rate``; touch order is tail first.

    An id is taken with all its blocks in all requests, so what is left of the trace is a prefix tree whose
    stack distances are ``rate`` times the true ones. The references missing from the sample are added to the
    smallest distances (SHARDS-adj). Raises ``UsageError`` where too few ids fall into the sample.
    """
    if not 0 < rate < 1:
        raise UsageError(
            "sampling rate out of range", where="--sample", got=str(rate), expected="0 < rate < 1"
        )
    position = _hashes(prompts.trace.distinct_ids, seed)
    chosen = int((position < rate).sum())
    if chosen < 2 * GROUPS:
        raise UsageError(
            "too few ids in the sample",
            where="--sample",
            got=f"{chosen} of {len(position)}",
            hint="raise the rate",
        )
    whole = _estimate(prompts, capacities, position < rate, rate)
    group = np.floor(position / rate * GROUPS)
    parts = np.array([_estimate(prompts, capacities, group == g, rate / GROUPS) for g in range(GROUPS)])
    error = STUDENT_T * parts.std(axis=0, ddof=1) / np.sqrt(GROUPS)
    return SampledCurve(capacities, rate, chosen, whole, error)


def _hashes(count: int, seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every id: splitmix64 of the id and the seed."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(derive_seed(seed, "curve.sample"))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _estimate(
    prompts: PromptBlocks, capacities: Int64s, keep: NDArray[np.bool_], rate: float
) -> NDArray[np.float64]:
    part = _only(prompts, keep)
    hits = hit_curve(part, "tail").hit_blocks.at(np.floor(capacities * rate).astype(np.int64))
    missing = prompts.references * rate - part.references
    possible = float(prompts.limits.sum(dtype=np.int64))
    return np.clip((hits + missing) / rate, 0.0, possible)


def _only(prompts: PromptBlocks, keep: NDArray[np.bool_]) -> PromptBlocks:
    """Return the requests with some ids only; private blocks stay out of the sample."""
    trace, per = prompts.trace, prompts.blocks_per_id
    lengths = np.diff(trace.id_offsets)
    request = np.repeat(np.arange(len(trace)), lengths)
    position = np.arange(len(trace.block_ids)) - trace.id_offsets[request]
    kept = keep[trace.block_ids]
    taken = np.clip(prompts.blocks[request].astype(np.int64) - position * per, 0, per) * kept
    countable = np.clip(prompts.limits[request].astype(np.int64) - position * per, 0, per) * kept
    kept &= taken > 0
    count = np.bincount(request[kept], minlength=len(trace))
    return PromptBlocks(
        trace=replace(
            trace,
            block_ids=trace.block_ids[kept],
            id_offsets=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        ),
        block_size_tokens=prompts.block_size_tokens,
        blocks_per_id=per,
        blocks=np.bincount(request, weights=taken, minlength=len(trace)).astype(np.uint32),
        private_blocks=np.zeros(len(trace), np.uint32),
        limits=np.bincount(request, weights=countable, minlength=len(trace)).astype(np.uint32),
    )
