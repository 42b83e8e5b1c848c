"""The keys of the blocks of KV cache groups over a trace."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.model.kv_groups import KvLayout
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, next_turns
from kvcache_sim.workload.trace import Trace


def native_groups(layout: KvLayout, trace: Trace, answers_shared: bool = False) -> _core.KvGroups:
    """Return the core's groups over a trace: a block has the key of the last unit in it.

    A unit is what divides both the group's block and the trace's, so that neither need divide the other.
    ``answers_shared``: a generated block takes the name that the session's next turn shows at its place.
    """
    units = {
        group.block_size_tokens: math.gcd(group.block_size_tokens, trace.block_size)
        for group in layout.groups
    }
    following = next_turns(trace) if answers_shared else np.full(len(trace), NO_NEXT_TURN, np.uint32)
    keys = {unit: _unit_keys(trace, unit, following) for unit in set(units.values())}
    rows = [
        (group.kind, size, group.reach_tokens, keys[units[size]], size // units[size])
        for group in layout.groups
        for size in (group.block_size_tokens,)
    ]
    return _core.KvGroups(rows, layout.scheduler_block_size)


def _unit_keys(trace: Trace, unit: int, following: NDArray[np.uint32]) -> _core.Keys:
    per_id = trace.block_size // unit
    named = np.minimum(trace.input_tokens // unit, np.diff(trace.id_offsets) * per_id)
    return _core.Keys(
        trace.id_offsets.astype(np.int64),
        trace.block_ids.astype(np.uint32),
        per_id,
        named.astype(np.uint32),
        following,
    )
