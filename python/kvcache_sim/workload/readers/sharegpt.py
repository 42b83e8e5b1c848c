"""ShareGPT conversations: texts, hashed here into chained blocks; each turn's prompt holds all before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.readers.conversations import Conversation, read_conversations
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.signs import SIGNS

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: Tokens a block unless the settings say otherwise.
BLOCK_SIZE = 16
_ANSWERS = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_conversations(source, settings, BLOCK_SIZE, _conversation)


def _conversation(line: int, value: Any) -> Conversation:
    turns = _turns(line, value)
    return Conversation(str(value.get("id", f"line {line}")), turns)


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


FORMAT = TraceFormat(
    "sharegpt",
    "JSON array or lines of conversations (from, value): texts, hashed here",
    SIGNS["sharegpt"],
    _read,
    BLOCK_SIZE,
)
