"""Conversations as requests: one per answer, with all earlier text as its prompt (ShareGPT, OpenAI chats)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.prompts.body import BodyError, Seen
from kvcache_sim.workload.prompts.messages import chat_of
from kvcache_sim.workload.prompts.render import Said, opaque_tokens, pieces
from kvcache_sim.workload.prompts.segments import Chat, Segment
from kvcache_sim.workload.prompts.template import renderer_of
from kvcache_sim.workload.readers.chained_text import TextRows, lengths_said
from kvcache_sim.workload.readers.findings import Finding
from kvcache_sim.workload.readers.format import SIGNS, TIMES, TraceFormat
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


class Asked(NamedTuple):
    """A request of a conversation: its prompt, and its answer or the answer's length in tokens."""

    prompt: Said
    answer: Said | int


class Conversation(NamedTuple):
    """The requests of a conversation, in order."""

    name: str
    asked: list[Asked]


class _Texts:
    """Prompts and answers of chats as encoded texts, by the rendering of ``trace import``."""

    def __init__(self, rows: TextRows, settings: ReadSettings) -> None:
        tokenizer = None if settings.tokenizer is None else Path(settings.tokenizer)
        self._rows, self.renderer, self.met_chat = rows, renderer_of(tokenizer), False
        self._is_exact = settings.tokenizer is not None or settings.bytes_per_token is not None

    def encoded(self, given: Said) -> bytes:
        """Return a text's bytes, or its tokens; a segment without a text has as many bytes as its tokens."""
        self.met_chat = self.met_chat or isinstance(given, Chat)
        found = pieces(given, self.renderer.render, self._is_exact)
        return b"".join(
            self._opaque(piece.segments[0]) if piece.text is None else self._rows.encode(piece.text)
            for piece in found
        )

    def _opaque(self, segment: Segment) -> bytes:
        size = self._rows.per_token
        return b"".join((token.to_bytes(4, "little") * size)[:size] for token in opaque_tokens(segment))

    def add(self, conversation: Conversation) -> bool:
        """Add one request per answer; return True if there was any."""
        rows, session = self._rows, len(self._rows.session_names)
        for turn, (prompt, answer) in enumerate(conversation.asked):
            outputs = answer if isinstance(answer, int) else rows.tokens(self.encoded(answer))
            rows.add(self.encoded(prompt), outputs, session, turn)
        if conversation.asked:
            rows.name_session(conversation.name)
        return bool(conversation.asked)


def read_conversations(
    source: TraceSource,
    settings: ReadSettings,
    block_size: int,
    read: Callable[[int, Any, Seen], Conversation],
) -> RawColumns:
    """Read an array or lines of conversations; ``read`` takes a line and its value."""
    rows = TextRows(settings, block_size)
    texts, seen = _Texts(rows, settings), Seen()
    problems: list[tuple[int, int, str, str, str, str, str]] = []
    bad = unanswered = 0
    timed, silent = False, 0
    for line, value in objects(source):
        try:
            conversation = read(line, value, seen)
        except TraceProblem as problem:
            if settings.on_bad_row == "error":
                raise
            bad += 1
            problems += [problem.args] if len(problems) < 20 else []
            continue
        timed |= isinstance(value, dict) and not value.keys().isdisjoint(TIMES)
        unanswered += not texts.add(conversation)
        if unanswered == 1 and not rows.inputs and not silent:
            silent = line
    if silent and not rows.inputs:
        raise _no_answers(silent, timed)
    found = [Finding("text", len(rows.inputs), 0, lengths_said(settings, rows.block_size))]
    if texts.met_chat:
        found.append(Finding("text", len(rows.inputs), 0, f"chats are rendered as {texts.renderer.name}"))
    found += [Finding("not-rendered", seen[what], 0, what) for what in seen]
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


#: Tokens per block unless the settings override it.
BLOCK_SIZE = 16
_ANSWERS = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}


def _read_sharegpt(source: TraceSource, settings: ReadSettings) -> RawColumns:
    def read(line: int, value: Any, _: Seen) -> Conversation:
        turns = _turns(line, value)
        before = ["".join(text for _, text in turns[:at]) for at in range(len(turns) + 1)]
        asked: list[Asked] = [
            Asked(text, turn[1]) for turn, text in zip(turns, before, strict=False) if turn[0] and text
        ]
        if turns and not turns[-1][0] and before[-1] and settings.answer_tokens is not None:
            asked.append(Asked(before[-1], settings.answer_tokens))
        return Conversation(str(value.get("id", f"line {line}")), asked)

    return read_conversations(source, settings, BLOCK_SIZE, read)


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
    def read(line: int, value: Any, seen: Seen) -> Conversation:
        try:
            return _openai(line, value, settings.answer_tokens, seen)
        except BodyError as bad:
            raise TraceProblem(line, 0, "conversation", bad.what, bad.got, bad.expected, "") from None

    return read_conversations(source, settings, BLOCK_SIZE, read)


def _openai(line: int, value: Any, answer_tokens: int | None, seen: Seen) -> Conversation:
    row = value if isinstance(value, dict) else {}
    body = row["body"] if isinstance(row.get("body"), dict) else row
    name = str(row.get("custom_id", row.get("id", f"line {line}")))
    if body.get("messages") == []:
        return Conversation(name, [])
    tools, messages = chat_of(body, seen)
    asked = [
        Asked(Chat(tools, messages[:at]), message)
        for at, message in enumerate(messages)
        if at and message.role == "assistant"
    ]
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    is_whole = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= _MOST_TOKENS
    outputs = limit if is_whole else answer_tokens
    if messages[-1].role != "assistant" and outputs is not None:
        asked.append(Asked(Chat(tools, messages), outputs))
    return Conversation(name, asked)


OPENAI = TraceFormat(
    "openai",
    "JSON array or lines of chats (messages of role, content), or bodies of requests: texts, hashed here",
    SIGNS["openai"],
    _read_openai,
    BLOCK_SIZE,
)
