"""How the files of each trace format are known: by their first bytes, in the order in which detection asks.

A sign imports nothing of its format: a run reads one, and need not import the readers of twelve others.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.workload.readers.format import first_row, header

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
