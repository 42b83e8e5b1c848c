"""What a shared pool node took, gave and lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("pool.hit_tokens", "tokens", "of cache.hit_tokens.remote, those that the shared pool gave"),
    Figure("pool.put_blocks", "blocks", "blocks that machines put there"),
    Figure("pool.read_blocks", "blocks", "blocks that machines read there, prefetches included"),
    Figure("pool.refused_blocks", "blocks", "blocks that found no room there: all of it was being read"),
    Figure("pool.evicted_blocks", "blocks", "blocks that its eviction policy took"),
    Figure("pool.lost_blocks", "blocks", "blocks that were there when the pool was lost"),
    Figure("pool.kept_blocks", "blocks", "blocks that are there at the end"),
)


def summarize_pool(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``pool`` of the summary, empty where machines share none."""
    found = {name.partition(".")[2]: n for name, n in counters.items() if name.startswith("pool.")}
    return {"pool": found} if found else {}
