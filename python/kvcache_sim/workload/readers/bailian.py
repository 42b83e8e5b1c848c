"""Qwen-Bailian anonymised usage traces: times in seconds, chat_id chains, ids of 16-token blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.jsonl import MOONCAKE, read_jsonl
from kvcache_sim.workload.readers.signs import SIGNS

if TYPE_CHECKING:
    from kvcache_sim._core import JsonlSchema, RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: A session is a chain of chats; its turn counts from the chain's first row in the file (the file's own
#: ``turn`` counts from chats that may lie before it).
SCHEMA: JsonlSchema = {
    **MOONCAKE,
    "time_unit_ns": NS_PER_S,
    "session": "",
    "turn": "",
    "delay": "",
    "chat": "chat_id",
    "parent": "parent_chat_id",
}


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_jsonl(source, settings, SCHEMA, FORMAT.block_size)


FORMAT = TraceFormat(
    "bailian",
    "JSON lines: chat_id, parent_chat_id, timestamp (s), hash_ids of 16 tokens",
    SIGNS["bailian"],
    _read,
    16,
)
