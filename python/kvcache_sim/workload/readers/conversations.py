"""Conversations as requests: one per answer, with all before it as its prompt.

ShareGPT and its variants, WildChat and LMSYS (texts in a row); OpenAI's chats and bodies of batches (rendered
as by ``trace import``); vLLM's custom data set (prompts with the length of their answer).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.prompts.body import BodyError, Seen, member
from kvcache_sim.workload.prompts.read import is_embedding, prompt_of
from kvcache_sim.workload.prompts.render import Said
from kvcache_sim.workload.prompts.segments import Chat
from kvcache_sim.workload.readers.chained_text import TextRows
from kvcache_sim.workload.readers.dates import time_ns
from kvcache_sim.workload.readers.findings import Finding
from kvcache_sim.workload.readers.format import SIGNS, TIMES, TURNS, TraceFormat
from kvcache_sim.workload.readers.json_stream import each_object
from kvcache_sim.workload.trace import OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


class Asked(NamedTuple):
    """A request of a conversation: its prompt, and its answer or the answer's length in tokens."""

    prompt: Said
    answer: Said | int


class Conversation(NamedTuple):
    """The requests of a conversation, in order, and its start where the file has one."""

    name: str
    asked: list[Asked]
    at_ns: int | None = None


#: Reads a line's value, with the tokens of answers that the file lacks; raises TraceProblem or BodyError.
_Read = Callable[[int, Any, int | None, Seen], Conversation]


def read_conversations(source: TraceSource, settings: ReadSettings, read: _Read) -> RawColumns:
    """Read an array or lines of conversations."""
    rows, seen = TextRows(settings, BLOCK_SIZE), Seen()
    starts: list[int | None] = []
    silent: list[int] = []
    timed = False

    def take(line: int, value: Any) -> None:
        nonlocal timed
        conversation = read(line, value, settings.answer_tokens, seen)
        timed |= isinstance(value, dict) and not value.keys().isdisjoint(TIMES)
        for turn, (prompt, answer) in enumerate(conversation.asked):
            outputs = answer if isinstance(answer, int) else rows.tokens(rows.encoded(answer))
            rows.add(rows.encoded(prompt), outputs, len(starts), turn)
        if conversation.asked:
            rows.name_session(conversation.name)
            starts.append(conversation.at_ns)
        else:
            silent.append(line)

    bad = each_object(source, settings.on_bad_row == "skip", take)
    if silent and not rows.inputs:
        raise _no_answers(silent[0], timed)
    found = [
        *rows.said(settings, seen),
        Finding("no-times", len(rows.inputs), 0, _start(rows, starts, timed)),
    ]
    if silent:
        said = f"{len(silent)} conversations without an answer hold no request"
        found.append(Finding("no-answer", len(silent), 0, said))
    columns = rows.columns(found)
    opens = columns["arrival_ns"][columns["think_ns"] == OPEN_LOOP]
    columns["unordered"] = bool((np.diff(opens) < 0).any())
    columns["problems"] = bad.first
    columns["problem_counts"] = [("conversation", bad.rows)] if bad.rows else []
    return columns


def _start(rows: TextRows, starts: list[int | None], timed: bool) -> str:
    """Set the start of each session if the file has them all; return what is assumed of times."""
    known = [start for start in starts if start is not None]
    if known and len(known) == len(starts):
        first = min(known)
        for row, session in enumerate(rows.session):
            if rows.think[row] == OPEN_LOOP:
                rows.arrival[row] = known[session] - first
        return "the file has a time a conversation: sessions start at it, turns follow at once"
    times = "times are not read (kvsim trace import keeps them)" if timed else "the file has no times"
    return f"{times}: sessions start at 0, turns follow at once"


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


def _sharegpt(line: int, value: Any, answer_tokens: int | None, _: Seen) -> Conversation:
    turns = _turns(line, value)
    before = ["".join(text for _, text in turns[:at]) for at in range(len(turns) + 1)]
    asked: list[Asked] = [
        Asked(text, turn[1]) for turn, text in zip(turns, before, strict=False) if turn[0] and text
    ]
    if turns and not turns[-1][0] and before[-1] and answer_tokens is not None:
        asked.append(Asked(before[-1], answer_tokens))
    name = member(value, "id", "conversation_id", "conversation_hash")
    return Conversation(f"line {line}" if name is None else str(name), asked, time_ns(member(value, *TIMES)))


def _turns(line: int, conversation: Any) -> list[tuple[bool, str]]:
    """Return (is an answer, text) of each turn."""
    turns = member(conversation, *TURNS)
    if not isinstance(turns, list) or not all(_is_turn(t) for t in turns):
        expected = 'conversations: [{"from": …, "value": …}, …], or role and content'
        raise TraceProblem(
            line, 0, "conversation", "not a conversation", str(conversation)[:40], expected, ""
        )
    return [
        (member(t, "from", "role").lower() in _ANSWERS, member(t, "value", "content") or "") for t in turns
    ]


def _is_turn(turn: Any) -> bool:
    said = member(turn, "value", "content")
    is_said = isinstance(said, str) or (said is None and isinstance(turn, dict) and "content" in turn)
    return is_said and isinstance(member(turn, "from", "role"), str)


SHAREGPT = TraceFormat(
    "sharegpt",
    "JSON array or lines of conversations (from, value; role, content: WildChat, LMSYS): texts, hashed",
    SIGNS["sharegpt"],
    lambda source, settings: read_conversations(source, settings, _sharegpt),
    BLOCK_SIZE,
)

_MOST_TOKENS = 2**31 - 1


def _openai(line: int, value: Any, answer_tokens: int | None, seen: Seen) -> Conversation:
    row = value if isinstance(value, dict) else {}
    inner = member(row, "body", "params")
    body = inner if isinstance(inner, dict) else row
    name = str(row.get("custom_id", row.get("id", f"line {line}")))
    if body.get("messages") == []:
        return Conversation(name, [])
    if is_embedding(body, None) and not str(row.get("url")).endswith("/responses"):
        raise BodyError("an embedding: no request for a generation", row.get("url"), "/v1/chat/completions …")
    prompt = prompt_of(body, seen)
    if prompt is None:
        raise BodyError("not a chat", value, 'messages: [{"role": …, "content": …}, …]')
    limit = member(body, "max_completion_tokens", "max_output_tokens", "max_tokens")
    is_whole = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= _MOST_TOKENS
    return Conversation(name, _asked(prompt, limit if is_whole else answer_tokens))


def _asked(prompt: Chat | str | list[int], outputs: int | None) -> list[Asked]:
    """Return a request for each answer in a chat, and one for its end if that waits for a known length."""
    if not isinstance(prompt, Chat):
        return [Asked(prompt, outputs)] if prompt and outputs is not None else []
    tools, messages = prompt
    asked = [
        Asked(Chat(tools, messages[:at]), message)
        for at, message in enumerate(messages)
        if at and message.role == "assistant"
    ]
    if messages and messages[-1].role != "assistant" and outputs is not None:
        asked.append(Asked(prompt, outputs))
    return asked


OPENAI = TraceFormat(
    "openai",
    "JSON array or lines of chats (messages of role, content), or of a batch's input: texts, hashed here",
    SIGNS["openai"],
    lambda source, settings: read_conversations(source, settings, _openai),
    BLOCK_SIZE,
)


def _custom(line: int, value: Any, answer_tokens: int | None, seen: Seen) -> Conversation:
    prompt, limit = member(value, "prompt"), member(value, "output_tokens")
    limit = answer_tokens if limit is None else limit
    if not isinstance(prompt, str | list) or not prompt:
        raise BodyError("no prompt", prompt, '{"prompt": …, "output_tokens": …}')
    if limit is not None and (type(limit) is not int or not 0 < limit <= _MOST_TOKENS):
        raise BodyError("output_tokens is no count", limit, "1 token or more")
    is_chat = isinstance(prompt, list) and isinstance(prompt[0], dict)
    said = prompt_of({"messages" if is_chat else "prompt": prompt}, seen)
    return Conversation(f"line {line}", _asked(said or "", limit))


VLLM_CUSTOM = TraceFormat(
    "vllm-custom",
    "vLLM's custom data set, JSON lines: prompt, output_tokens: texts, hashed here",
    SIGNS["vllm-custom"],
    lambda source, settings: read_conversations(source, settings, _custom),
    BLOCK_SIZE,
)
