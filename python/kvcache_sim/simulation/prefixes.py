"""The prefixes that requests share, with their resident tokens at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcache_sim.cache.machine import Machine
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.workload.trace import Trace


def resident_prefixes(
    settings: ClusterSettings, caches: Sequence[Machine], trace: Trace, rows: Mapping[str, ColumnData]
) -> dict[str, ColumnData]:
    """Return the columns of ``prefixes.parquet``; ``rows``: those of the requests. Cost: a walk each."""
    from kvcache_sim.metrics.prefix_entries import prefix_entries

    block = settings.cache.block_size_tokens
    prompts = trace.input_tokens

    def resident(machine: int, request: int) -> list[tuple[int, int]]:
        cache = caches[machine]
        store = cache.tree or cache.prefixes
        if store is None:
            return []
        unit = cache.cache.block_size_tokens  # 1 under simplified accounting
        parts = store.uses(request, int(prompts[request]) // block * block // unit)
        return [(end * unit, users) for end, users, _ in parts]

    return prefix_entries(rows, trace, resident, block)
