"""Rows of JSON under different member names, read by the native scanner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.units import NS_PER_MS

if TYPE_CHECKING:
    from kvcache_sim._core import JsonlSchema, RawColumns, RawSettings, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: The members of the Mooncake release, with those its users added (AIPerf's session_id and delay, and ours).
MOONCAKE: JsonlSchema = {
    "time": "timestamp",
    "time_unit_ns": NS_PER_MS,
    "input": "input_length",
    "output": "output_length",
    "ids": "hash_ids",
    "session": "session_id",
    "turn": "turn",
    "delay": "delay",
    "label": "is_conversational_turn",
    "after": "after",
    "history": "history_length",
    "priority": "priority",
    "named": "named_length",
    "abort": "abort_after",
    "structure": "prompt_structure",
    "chat": "",
    "parent": "",
    "per_token": 1,
}


def raw_settings(settings: ReadSettings, block_size: int) -> RawSettings:
    """Return the settings as the native readers take them."""
    return {
        "block_size": settings.block_size or block_size,
        "skip": settings.on_bad_row == "skip",
        "order": settings.time_order,
        "keep_unknown": settings.keeps_members,
        "any_integer": settings.any_integer,
    }


def read_jsonl(
    source: TraceSource, settings: ReadSettings, schema: JsonlSchema, block_size: int
) -> RawColumns:
    """Read every row; raises ``TraceProblem``. Streaming: memory is the columns and one line."""
    columns = source.read_jsonl(schema, raw_settings(settings, block_size))
    columns["block_size"] = settings.block_size or block_size
    return columns
