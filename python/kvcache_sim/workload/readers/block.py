"""Block size of a trace file, detected from its first bytes."""

from __future__ import annotations

from kvcache_sim._core import TraceProblem, TraceSource
from kvcache_sim.errors import KvsimError
from kvcache_sim.workload.readers.json_rows import read_head
from kvcache_sim.workload.readers.registry import format_of
from kvcache_sim.workload.readers.settings import ReadSettings


def block_of_file(path: str, settings: ReadSettings) -> int | None:
    """Return the block size of a trace file; None if its first bytes do not determine it."""
    if settings.block_size is not None:
        return settings.block_size
    try:
        head = read_head(TraceSource(path))
        chosen = format_of(head, path, settings.format)
        return chosen.block_of(head, settings)
    except (KvsimError, TraceProblem, OSError, ValueError):
        return None
