"""Trace formats: name, reader, and detection rule, in the order of detection.

A detection rule imports nothing of its format: a run reads one format and does not import the other readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvcache_sim.values import Value

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceRows, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


class TraceFormat(Value):
    """One published format; ``read`` takes an opened source, ``detect`` its first bytes."""

    name: str
    help: str
    #: True if the first (decompressed) bytes of a file are of this format.
    detect: Callable[[bytes], bool]
    #: Reads the source at ``settings.block_size`` tokens per id (None: the format's own).
    read: Callable[[TraceSource, ReadSettings], RawColumns]
    #: The format's own block size.
    block_size: int = 512
    #: Tokens per id from a file's first bytes, if these or the settings determine them; None: the format's
    #: own.
    detect_block: Callable[[bytes, ReadSettings], int] | None = None
    #: Opens the source to read its rows in windows; None if the format does not support it.
    rows: Callable[[TraceSource, ReadSettings], TraceRows] | None = None
    #: The same for replays of all ids alone; the file states its tokens per id.
    replay_rows: Callable[[TraceSource, ReadSettings], TraceRows] | None = None

    def block_of(self, head: bytes, settings: ReadSettings) -> int:
        """Return the tokens per id of a file that begins with ``head``; raises like the reader."""
        if settings.block_size is not None:
            return settings.block_size
        return self.block_size if self.detect_block is None else self.detect_block(head, settings)


def first_row(head: bytes) -> dict[str, Any] | None:
    """Return the members of a file's first line of JSON, truncated ones by name; None if it is no object."""
    import json

    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return _names(line)
    return row if isinstance(row, dict) else None


def _names(line: bytes) -> dict[str, Any]:
    """Return the quoted words before colons of a truncated line of JSON, without values."""
    import re

    return {m.decode(): None for m in re.findall(rb'"([A-Za-z_ ]{1,40})"\s*:', line)}


def header(head: bytes) -> list[str]:
    """Return the column names of a CSV file's first line."""
    line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
    return [name.strip().strip('"') for name in line.decode("utf-8", "replace").split(",")]


Sign = Callable[[bytes], bool]


def _sharegpt(head: bytes) -> bool:
    return b'"conversations"' in head and b'"value"' in head and head.lstrip()[:1] in (b"[", b"{")


def _aiperf_dag(head: bytes) -> bool:
    row = first_row(head)
    if row is None or "session_id" not in row:
        return False
    turns = "turns" in row and any(f'"{name}"'.encode() in head for name in ("messages", "forks", "spawns"))
    return turns or "orchestrator" in row


def _aiperf_multi_turn(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and "turns" in row and (b'"text"' in head or b'"texts"' in head)


#: Members of a logged request that hold its time.
TIMES = ("timestamp", "time", "ts", "startTime", "start_time", "request_time", "created_at", "date")


def _openai(head: bytes) -> bool:
    return b'"messages"' in head and b'"role"' in head and head.lstrip()[:1] in (b"[", b"{")


def _bailian(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"chat_id", "parent_chat_id"} <= row.keys()


def _lmcache(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"input_bytes", "output_bytes"} <= row.keys()


def _weka(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"session", "rows"} <= row.keys()


def _aiperf_weka(head: bytes) -> bool:
    return b'"hash_id_scope"' in head and b'"requests"' in head


#: Members that only this format has.
_AGENTIC = {"wait_for", "tool_wait_ms", "tool_events", "branches"}


def _dynamo_agentic(head: bytes) -> bool:
    row = first_row(head)
    if row is None or "request_id" not in row or "hash_ids" not in row:
        return False
    return bool(_AGENTIC & row.keys()) or any(f'"{name}"'.encode() in head for name in _AGENTIC)


def _mooncake(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and bool({"input_length", "output_length", "hash_ids"} & row.keys())


def _columns(*names: str) -> Sign:
    return lambda head: set(names) <= set(header(head))


SIGNS: dict[str, Sign] = {
    "sharegpt": _sharegpt,
    "aiperf-dag": _aiperf_dag,
    "aiperf-multi-turn": _aiperf_multi_turn,
    "openai": _openai,
    "bailian": _bailian,
    "lmcache": _lmcache,
    "weka": _weka,
    "aiperf-weka": _aiperf_weka,
    "dynamo-agentic": _dynamo_agentic,
    "mooncake": _mooncake,
    "azure": _columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": _columns("Timestamp", "Request tokens", "Response tokens"),
    "vidur": _columns("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
}
