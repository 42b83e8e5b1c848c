"""OpenAI chats: ``messages`` of a fine-tuning file, or bodies of requests as the batch API takes them."""

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
_MOST_TOKENS = 2**31 - 1


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_conversations(source, settings, BLOCK_SIZE, _conversation)


def _conversation(line: int, value: Any) -> Conversation:
    row = value if isinstance(value, dict) else {}
    body = row["body"] if isinstance(row.get("body"), dict) else row
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(_is_message(m) for m in messages):
        expected = 'messages: [{"role": …, "content": …}, …]'
        raise TraceProblem(line, 0, "conversation", "not a chat", str(value)[:40], expected, "")
    turns = [(m["role"] == "assistant", _text(m.get("content"))) for m in messages]
    name = str(row.get("custom_id", row.get("id", f"line {line}")))
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    whole = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= _MOST_TOKENS
    return Conversation(name, turns, limit if whole else None)


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    return isinstance(message.get("content"), str | list | None)


def _text(content: str | list[Any] | None) -> str:
    """Return the text of a message; of its parts, those that are text."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content or ""


FORMAT = TraceFormat(
    "openai",
    "JSON array or lines of chats (messages of role, content), or bodies of requests: texts, hashed here",
    SIGNS["openai"],
    _read,
    BLOCK_SIZE,
)
