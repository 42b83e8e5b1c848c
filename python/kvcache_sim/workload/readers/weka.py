"""WEKA agentic sessions (kv-cache-tester): closed loop, think times, sub-agents, ids local to a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.jsonl import raw_settings
from kvcache_sim.workload.readers.signs import SIGNS

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: The block size of the published files, said in each of their lines.
BLOCK_SIZE = 64


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return source.read_weka(raw_settings(settings, 0))


def block_told(head: bytes, settings: ReadSettings) -> int:
    """Return the tokens of a block as the head of a file says them, else those of the published files."""
    del settings
    found = re.search(rb'"block_size"\s*:\s*(\d{1,7})\b', head)
    return int(found[1]) if found and int(found[1]) > 0 else BLOCK_SIZE


FORMAT = TraceFormat(
    "weka",
    "JSON lines: one session a line with rows of t, in, out, think (s), hash ranges",
    SIGNS["weka"],
    _read,
    BLOCK_SIZE,
    block_told,
)
