"""ShareGPT conversations: texts, hashed here into chained blocks; each turn's prompt holds all before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.readers.chained_text import TextRows
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: Tokens a block unless the settings say otherwise.
BLOCK_SIZE = 16
_ANSWERS = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}


def _detect(head: bytes) -> bool:
    return b'"conversations"' in head and b'"value"' in head and head.lstrip()[:1] in (b"[", b"{")


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    rows = TextRows(settings, BLOCK_SIZE)
    problems: list[tuple[int, int, str, str, str, str, str]] = []
    bad = unanswered = 0
    for line, conversation in objects(source):
        try:
            turns = _turns(line, conversation)
        except TraceProblem as problem:
            if settings.on_bad_row == "error":
                raise
            bad += 1
            problems += [problem.args] if len(problems) < 20 else []
            continue
        name = str(conversation.get("id", f"line {line}"))
        unanswered += not _add(rows, name, turns)
    unit = "tokens of the tokenizer" if settings.tokenizer else f"{settings.bytes_per_token} bytes a token"
    found = [
        ("text", len(rows.inputs), 0, f"texts are hashed here: {unit}, {rows.block_size} tokens a block")
    ]
    found.append(
        ("no-times", len(rows.inputs), 0, "the file has no times: sessions start at 0, turns follow at once")
    )
    if unanswered:
        found.append(
            ("no-answer", unanswered, 0, f"{unanswered} conversations without an answer hold no request")
        )
    columns = rows.columns(found)
    columns["problems"], columns["problem_counts"] = problems, [("conversation", bad)] if bad else []
    return columns


def _turns(line: int, conversation: Any) -> list[tuple[bool, str]]:
    """Return (is an answer, text) of each turn."""
    turns = conversation.get("conversations") if isinstance(conversation, dict) else None
    if not isinstance(turns, list) or not all(_is_turn(t) for t in turns):
        expected = 'conversations: [{"from": …, "value": …}, …]'
        raise TraceProblem(
            line, 0, "conversation", "not a conversation", str(conversation)[:40], expected, ""
        )
    return [(t["from"].lower() in _ANSWERS, t["value"]) for t in turns]


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and isinstance(turn.get("from"), str) and isinstance(turn.get("value"), str)


def _add(rows: TextRows, name: str, turns: list[tuple[bool, str]]) -> bool:
    """Add one request an answer; returns whether there was any."""
    history, turn, session = b"", 0, len(rows.session_names)
    for answer, text in turns:
        encoded = rows.encode(text)
        if answer and history:
            rows.add(history, encoded, session, turn)
            turn += 1
        history += encoded
    if turn:
        rows.session_names.append(name)
    return bool(turn)


FORMAT = TraceFormat(
    "sharegpt",
    "JSON array or lines of conversations (from, value): texts, hashed here",
    _detect,
    _read,
    BLOCK_SIZE,
)
