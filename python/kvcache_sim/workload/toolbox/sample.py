"""Part of a trace with its reuse kept: whole sessions, or whole groups of prompts that share a prefix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.rng import derive_seed
from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.toolbox.stats import unbounded_hits
from kvcache_sim.workload.toolbox.transforms import require
from kvcache_sim.workload.trace import NO_SESSION, Trace

#: Depths searched for one at which prompts part.
_DEEPEST = 64


def sample(trace: Trace, fraction: float, seed: int) -> Trace:
    """Return about ``fraction`` of the units of a trace, chosen by name from the seed.

    Units are sessions where every row has one, else groups of prompts with the same block at the first
    depth at which prompts part. Whether a unit is chosen depends on its number and the seed alone.
    Invariant: units are whole, so each kept prompt of a group finds in an unbounded cache what it found
    before, as far as it found more than what all groups share.
    """
    if not 0 < fraction <= 1:
        raise UsageError(
            "fraction out of range", where="FRACTION", got=str(fraction), expected="above 0, up to 1"
        )
    sessions = bool(np.all(trace.session != NO_SESSION))
    depth = -1 if sessions else parting_depth(trace)
    unit = trace.session.astype(np.int64) if sessions else prefix_groups(trace, depth)
    limit = int(fraction * 2**64)
    units = np.unique(unit)
    chosen = np.array([derive_seed(seed, f"trace.sample:{u}") < limit for u in units.tolist()], np.bool_)
    kept = np.isin(unit, units[chosen])
    if not kept.any():
        raise TraceError(
            "the sample is empty", where=trace.source, got=f"{len(units)} units", hint="a larger FRACTION"
        )
    rows = np.flatnonzero(kept)
    out = select_rows(trace, rows)
    require(not bool(np.isin(unit[~kept], unit[kept]).any()), "sample", "units are whole")
    if not sessions and _chained(trace):
        before, after = unbounded_hits(trace).blocks[rows], unbounded_hits(out).blocks
        deep = before > depth
        require(np.array_equal(before[deep], after[deep]), "sample", "reuse within a group is kept")
    return out


def _chained(trace: Trace) -> bool:
    """Return whether every block always stands behind the same block."""
    before = np.empty(len(trace.block_ids), np.int64)
    before[1:] = trace.block_ids[:-1]
    before[trace.id_offsets[:-1][np.diff(trace.id_offsets) > 0]] = -1
    parent = np.empty(trace.distinct_ids, np.int64)
    parent[trace.block_ids] = before
    return bool(np.array_equal(parent[trace.block_ids], before))


def parting_depth(trace: Trace) -> int:
    """Return the first depth (in blocks) at which the prompts do not all show the same block."""
    counts = np.diff(trace.id_offsets)
    for depth in range(_DEEPEST):
        deep = counts > depth
        if len(np.unique(trace.block_ids[trace.id_offsets[:-1][deep] + depth])) > 1:
            return depth
    return 0


def prefix_groups(trace: Trace, depth: int) -> NDArray[np.int64]:
    """Return for each row the block at ``depth``; a shorter prompt is a group of its own."""
    counts = np.diff(trace.id_offsets)
    group = trace.distinct_ids + np.arange(len(trace), dtype=np.int64)
    deep = counts > depth
    group[deep] = trace.block_ids[trace.id_offsets[:-1][deep] + depth]
    return group
