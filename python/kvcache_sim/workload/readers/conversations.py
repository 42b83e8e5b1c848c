"""Conversations as requests: one per answer, with all earlier text as its prompt (ShareGPT, OpenAI chats)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.readers.chained_text import TextRows, lengths_said
from kvcache_sim.workload.readers.findings import Finding
from kvcache_sim.workload.readers.format import SIGNS, TIMES, TraceFormat
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


class Conversation(NamedTuple):
    """The turns of a conversation, in order, with their roles."""

    name: str
    #: (is an answer of the model, text) of each turn.
    turns: list[tuple[bool, str]]
    #: Most tokens of an answer that the file lacks; None without a limit.
    asked_tokens: int | None = None


def read_conversations(
    source: TraceSource, settings: ReadSettings, block_size: int, read: Callable[[int, Any], Conversation]
) -> RawColumns:
    """Read an array or lines of conversations; ``read`` takes a line and its value."""
    rows = TextRows(settings, block_size)
    problems: list[tuple[int, int, str, str, str, str, str]] = []
    bad = unanswered = 0
    timed, silent = False, 0
    for line, value in objects(source):
        try:
            conversation = read(line, value)
        except TraceProblem as problem:
            if settings.on_bad_row == "error":
                raise
            bad += 1
            problems += [problem.args] if len(problems) < 20 else []
            continue
        timed |= isinstance(value, dict) and not value.keys().isdisjoint(TIMES)
        unanswered += not _add(rows, conversation)
        if unanswered == 1 and not rows.inputs and not silent:
            silent = line
    if silent and not rows.inputs:
        raise _no_answers(silent, timed)
    found = [Finding("text", len(rows.inputs), 0, lengths_said(settings, rows.block_size))]
    times = "times are not read (kvsim trace import keeps them)" if timed else "the file has no times"
    found.append(
        Finding("no-times", len(rows.inputs), 0, f"{times}: sessions start at 0, turns follow at once")
    )
    if unanswered:
        said = f"{unanswered} conversations without an answer hold no request"
        found.append(Finding("no-answer", unanswered, 0, said))
    columns = rows.columns(found)
    columns["problems"], columns["problem_counts"] = problems, [("conversation", bad)] if bad else []
    return columns


def _no_answers(line: int, timed: bool) -> TraceProblem:
    """Return the error of chats without an answer or its length, with the command that converts them."""
    verb = "import" if timed else "convert"
    expected = "an answer, or max_tokens for its length"
    hint = f"kvsim trace {verb} FILE --answer-tokens 256 -o trace.jsonl assumes one"
    return TraceProblem(
        line, 0, "no-answer", "chats (messages) without an answer", "prompts alone", expected, hint
    )


def _add(rows: TextRows, conversation: Conversation) -> bool:
    """Add one request per answer; return True if there was any."""
    history, turn, session = b"", 0, len(rows.session_names)
    for answer, text in conversation.turns:
        encoded = rows.encode(text)
        if answer and history:
            rows.add(history, rows.tokens(encoded), session, turn)
            turn += 1
        history += encoded
    waits = bool(conversation.turns) and not conversation.turns[-1][0]
    if waits and history and conversation.asked_tokens is not None:
        rows.add(history, conversation.asked_tokens, session, turn)
        turn += 1
    if turn:
        rows.name_session(conversation.name)
    return bool(turn)


#: Tokens per block unless the settings override it.
BLOCK_SIZE = 16
_ANSWERS = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}


def _read_sharegpt(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_conversations(
        source, settings, BLOCK_SIZE, lambda line, value: _sharegpt(line, value, settings.answer_tokens)
    )


def _sharegpt(line: int, value: Any, answer_tokens: int | None) -> Conversation:
    turns = _turns(line, value)
    return Conversation(str(value.get("id", f"line {line}")), turns, answer_tokens)


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


SHAREGPT = TraceFormat(
    "sharegpt",
    "JSON array or lines of conversations (from, value): texts, hashed here",
    SIGNS["sharegpt"],
    _read_sharegpt,
    BLOCK_SIZE,
)


_MOST_TOKENS = 2**31 - 1


def _read_openai(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_conversations(
        source, settings, BLOCK_SIZE, lambda line, value: _openai(line, value, settings.answer_tokens)
    )


def _openai(line: int, value: Any, answer_tokens: int | None) -> Conversation:
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
    return Conversation(name, turns, limit if whole else answer_tokens)


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    return isinstance(message.get("content"), str | list | None)


def _text(content: str | list[Any] | None) -> str:
    """Return the text of a message; of its parts, the text parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content or ""


OPENAI = TraceFormat(
    "openai",
    "JSON array or lines of chats (messages of role, content), or bodies of requests: texts, hashed here",
    SIGNS["openai"],
    _read_openai,
    BLOCK_SIZE,
)
