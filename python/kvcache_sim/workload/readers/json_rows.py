"""Rows of JSON under different member names, read by the native scanner: Mooncake, Bailian, LMCache, WEKA."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_MS, NS_PER_S
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat, read_head, rows_with_ids

if TYPE_CHECKING:
    from kvcache_sim._core import JsonlSchema, RawColumns, RawSettings, TraceRows, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: The members of the Mooncake release, with additions (AIPerf's session_id and delay, and kvsim's).
MOONCAKE_ROWS: JsonlSchema = {
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
    """Return the settings in the native readers' form."""
    return {
        "block_size": settings.block_size or block_size,
        "skip": settings.on_bad_row == "skip",
        "order": settings.time_order,
        "keep_unknown": settings.keeps_members,
        "sample": settings.sample,
    }


def read_jsonl(
    source: TraceSource, settings: ReadSettings, schema: JsonlSchema, block_size: int
) -> RawColumns:
    """Read every row; raises ``TraceProblem``. Streaming: memory is the columns and one line."""
    columns = source.read_jsonl(schema, raw_settings(settings, block_size))
    columns["block_size"] = settings.block_size or block_size
    return columns


class _Counted(NamedTuple):
    """A row's block ids, and the tokens of its prompt."""

    ids: int
    prompt_tokens: int


#: Candidate block sizes: the powers of two that engines and published traces use.
_POWERS = [1 << power for power in range(17)]


@lru_cache(maxsize=1)  # a scenario asks for it before its reader does
def fitting_block(head: bytes, usual: int) -> int:
    """Return the format's ``own`` block size if the rows of ``head`` fit it, else the only power that fits.

    A row fits if it has an id for each block of its prompt, the last one partial or left out. If no power
    fits all rows, or several do, the result is the format's own.
    """
    rows = _counted(head)
    if not rows or _fits(rows, usual):
        return usual
    powers = [block for block in _POWERS if _fits(rows, block)]
    return powers[0] if len(powers) == 1 else usual


def _fits(rows: list[_Counted], block: int) -> bool:
    return not [tokens for ids, tokens in rows if ids not in (tokens // block, -(-tokens // block))]


def guessed_block(block: int, rows: int) -> tuple[str, int, int, str]:
    """Return the note on a block size inferred from the first rows: kind, rows, line 0, and a sentence."""
    said = f"ids and lengths of the first rows fit blocks of {block} tokens alone: they are taken as such"
    return "block-size", rows, 0, said


def _counted(head: bytes) -> list[_Counted]:
    """Return the counts of the complete rows with ids in a file's first bytes."""
    rows = ((row["hash_ids"], row.get("input_length")) for row in rows_with_ids(head))
    return [_Counted(len(ids), tokens) for ids, tokens in rows if isinstance(tokens, int) and tokens > 0]


def _read_mooncake(source: TraceSource, settings: ReadSettings) -> RawColumns:
    block = MOONCAKE.block_of(read_head(source), settings)
    columns = read_jsonl(source, settings, MOONCAKE_ROWS, block)
    if settings.block_size is None and block != MOONCAKE.block_size:
        columns["findings"].append(guessed_block(block, len(columns["arrival_ns"])))
    return columns


def _mooncake_block(head: bytes, settings: ReadSettings) -> int:
    del settings
    return fitting_block(head, MOONCAKE.block_size)


def _rows(source: TraceSource, settings: ReadSettings) -> TraceRows:
    from kvcache_sim._core import TraceRows

    return TraceRows(source, MOONCAKE_ROWS, raw_settings(settings, MOONCAKE.block_size))


MOONCAKE = TraceFormat(
    "mooncake",
    "JSON lines: timestamp (ms), input_length, output_length, hash_ids",
    SIGNS["mooncake"],
    _read_mooncake,
    detect_block=_mooncake_block,
    rows=_rows,
    numbers_turns=lambda head: b'"turn"' in head or b'"after"' in head,
)


#: A session is a chain of chats; its turn counts from the chain's first row in the file (the file's own
#: ``turn`` counts from chats that may be before it).
_BAILIAN_SCHEMA: JsonlSchema = {
    **MOONCAKE_ROWS,
    "time_unit_ns": NS_PER_S,
    "session": "",
    "turn": "",
    "delay": "",
    "chat": "chat_id",
    "parent": "parent_chat_id",
}


def _bailian_rows(source: TraceSource, settings: ReadSettings) -> TraceRows:
    from kvcache_sim._core import TraceRows

    return TraceRows(source, _BAILIAN_SCHEMA, raw_settings(settings, BAILIAN.block_size))


def _read_bailian(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_jsonl(source, settings, _BAILIAN_SCHEMA, BAILIAN.block_size)


BAILIAN = TraceFormat(
    "bailian",
    "JSON lines: chat_id, parent_chat_id, timestamp (s), hash_ids of 16 tokens",
    SIGNS["bailian"],
    _read_bailian,
    16,
    rows=_bailian_rows,
)


BLOCK_BYTES = 256

_LMCACHE_SCHEMA: JsonlSchema = {**MOONCAKE_ROWS, "input": "input_bytes", "output": "output_bytes"}


def _read_lmcache(source: TraceSource, settings: ReadSettings) -> RawColumns:
    if settings.tokenizer is not None:
        raise UsageError(
            "has no effect", where="trace.tokenizer", hint="the file has lengths and ids, no texts"
        )
    block = _lmcache_block(b"", settings)
    schema: JsonlSchema = {**_LMCACHE_SCHEMA, "per_token": settings.token_bytes}
    columns = read_jsonl(source, settings, schema, block)
    said = f"lengths are bytes, {settings.token_bytes_said}"
    hint = "" if settings.bytes_per_token else ": trace.bytes_per_token says otherwise"
    columns["findings"].append(("bytes-as-tokens", len(columns["arrival_ns"]), 0, said + hint))
    return columns


def _lmcache_block(head: bytes, settings: ReadSettings) -> int:
    del head
    each = settings.token_bytes
    if BLOCK_BYTES % each:
        raise UsageError(
            "bytes_per_token must divide the trace's 256-byte blocks",
            where="bytes_per_token",
            got=str(each),
            expected="1, 2, 4, 8, …, 256",
        )
    return BLOCK_BYTES // each


LMCACHE = TraceFormat(
    "lmcache",
    "JSON lines: timestamp (ms), session_id, input_bytes, output_bytes, ids of 256 bytes",
    SIGNS["lmcache"],
    _read_lmcache,
    detect_block=_lmcache_block,
)


#: The block size of the published files, stated in each of their lines.
WEKA_BLOCK_SIZE = 64


def _read_weka(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return source.read_weka(raw_settings(settings, 0))


def _weka_rows(source: TraceSource, settings: ReadSettings) -> TraceRows:
    from kvcache_sim._core import TraceRows

    rows = TraceRows.of_weka(source, raw_settings(settings, 0))
    rows.read(1)  # it states the tokens per block
    return rows


def stated_block(head: bytes, settings: ReadSettings) -> int:
    """Return the tokens per block stated in the head of a file, else those of the published files."""
    del settings
    found = re.search(rb'"block_size"\s*:\s*(\d{1,7})\b', head)
    return int(found[1]) if found and int(found[1]) > 0 else WEKA_BLOCK_SIZE


WEKA = TraceFormat(
    "weka",
    "JSON lines: one session a line with rows of t, in, out, think (s), hash ranges",
    SIGNS["weka"],
    _read_weka,
    WEKA_BLOCK_SIZE,
    stated_block,
    replay_rows=_weka_rows,
)
