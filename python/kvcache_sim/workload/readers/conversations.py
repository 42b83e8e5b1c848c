"""Conversations as requests: one per answer, with all before it as its prompt.

ShareGPT and its variants, WildChat and LMSYS (texts in a row); OpenAI's chats and bodies of batches (rendered
as in an import of logs); vLLM's custom data set (prompts with the length of their answer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.prompts.body import BodyError, Seen, member
from kvcache_sim.workload.prompts.read import prompt_of
from kvcache_sim.workload.prompts.render import shown
from kvcache_sim.workload.prompts.segments import Chat
from kvcache_sim.workload.prompts.template import renderer_of
from kvcache_sim.workload.readers.chained_text import TextRows, lengths_said
from kvcache_sim.workload.readers.dates import time_ns
from kvcache_sim.workload.readers.findings import Finding
from kvcache_sim.workload.readers.format import SIGNS, TIMES, TURNS, TraceFormat
from kvcache_sim.workload.readers.json_stream import each_object
from kvcache_sim.workload.trace import OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.prompts.template import Renderer
    from kvcache_sim.workload.readers.settings import ReadSettings


class Asked(NamedTuple):
    """A request of a conversation: its encoded prompt, and its answer's tokens."""

    prompt: bytes
    answer_tokens: int


class Conversation(NamedTuple):
    """The requests of a conversation in order; its start where the file has one."""

    name: str
    requests: list[Asked]
    at_ns: int | None = None


#: Reads the conversation of a line; raises TraceProblem or BodyError.
_Read = Callable[["_Context", int, Any], Conversation]


class _Context:
    """What reading a conversation needs: the rows with their tokenizer, and what is not rendered."""

    def __init__(self, settings: ReadSettings, block_size: int) -> None:
        self.settings, self.seen = settings, Seen()
        self.rows = TextRows(settings, block_size)
        path = settings.tokenizer
        self.renderer: Renderer = renderer_of(None if path is None else Path(path))


def read_conversations(source: TraceSource, settings: ReadSettings, read: _Read) -> RawColumns:
    """Read an array or lines of conversations."""
    context = _Context(settings, BLOCK_SIZE)
    rows, starts, silent = context.rows, [], []
    timed = False

    def take(line: int, value: Any) -> None:
        nonlocal timed
        conversation = read(context, line, value)
        timed |= isinstance(value, dict) and not value.keys().isdisjoint(TIMES)
        if not conversation.requests:
            silent.append(line)
            return
        for turn, asked in enumerate(conversation.requests):
            rows.add(asked.prompt, asked.answer_tokens, len(rows.session_names), turn)
        rows.name_session(conversation.name)
        starts.append(conversation.at_ns)

    bad = each_object(source, settings.on_bad_row == "skip", take)
    if silent and not rows.inputs:
        raise _no_answers(silent[0], timed)
    found = [
        Finding("text", len(rows.inputs), 0, lengths_said(settings, rows.block_size)),
        Finding("no-times", len(rows.inputs), 0, _start(rows, starts, timed)),
    ]
    found += [Finding("rendering", count, 0, f"{count:,} {what}") for what, count in context.seen.items()]
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
        return (
            "sessions start at the file's times, turns follow at once: the file has one time a conversation"
        )
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


def _sharegpt(context: _Context, line: int, value: Any) -> Conversation:
    rows, history, requests = context.rows, b"", []
    turns = _turns(line, value)
    for is_answer, text in turns:
        encoded = rows.encode(text)
        if is_answer and history:
            requests.append(Asked(history, rows.tokens(encoded)))
        history += encoded
    if turns and not turns[-1][0] and history and context.settings.answer_tokens is not None:
        requests.append(Asked(history, context.settings.answer_tokens))
    name = member(value, "id", "conversation_id", "conversation_hash")
    return Conversation(
        f"line {line}" if name is None else str(name), requests, time_ns(member(value, *TIMES))
    )


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
    if not isinstance(turn, dict) or not isinstance(member(turn, "from", "role"), str):
        return False
    said = member(turn, "value", "content")
    return isinstance(said, str) or (said is None and "content" in turn)


SHAREGPT = TraceFormat(
    "sharegpt",
    "JSON array or lines of conversations (from, value or role, content: WildChat, LMSYS): texts, hashed",
    SIGNS["sharegpt"],
    lambda source, settings: read_conversations(source, settings, _sharegpt),
    BLOCK_SIZE,
)

_MOST_TOKENS = 2**31 - 1


def _openai(context: _Context, line: int, value: Any) -> Conversation:
    row = value if isinstance(value, dict) else {}
    body = row["body"] if isinstance(row.get("body"), dict) else row
    if str(row.get("url")).rsplit("/", 1)[-1] in ("embeddings", "moderations"):
        raise BodyError("no request for a generation", row["url"], "/v1/chat/completions and the like")
    prompt = prompt_of(body, context.seen)
    if prompt is None:
        raise BodyError("not a chat", value, 'messages: [{"role": …, "content": …}, …]')
    limit = member(body, "max_completion_tokens", "max_output_tokens", "max_tokens")
    whole = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= _MOST_TOKENS
    requests = [*_asked(context, prompt, limit if whole else context.settings.answer_tokens)]
    return Conversation(str(row.get("custom_id", row.get("id", f"line {line}"))), requests)


def _asked(context: _Context, prompt: Chat | str | list[int], limit: int | None) -> Iterator[Asked]:
    """Yield a request for each answer within a chat, and for its end if it waits for one of known length."""
    rows = context.rows
    if not isinstance(prompt, Chat):
        if limit is not None and prompt:
            yield Asked(rows.encode_prompt(prompt), limit)
        return
    for at, message in enumerate(prompt.messages):
        before = Chat(prompt.tools, prompt.messages[:at])
        if message.role == "assistant" and at:
            answer = rows.tokens(rows.encode_prompt(shown(message)))
            yield Asked(rows.encode_prompt(context.renderer.render(before)), answer)
    if limit is not None and prompt.messages[-1:] and prompt.messages[-1].role != "assistant":
        yield Asked(rows.encode_prompt(context.renderer.render(prompt)), limit)


OPENAI = TraceFormat(
    "openai",
    "JSON array or lines of chats (messages of role, content), or of a batch's input: texts, hashed here",
    SIGNS["openai"],
    lambda source, settings: read_conversations(source, settings, _openai),
    BLOCK_SIZE,
)


def _custom(context: _Context, line: int, value: Any) -> Conversation:
    prompt, limit = member(value, "prompt"), member(value, "output_tokens")
    limit = context.settings.answer_tokens if limit is None else limit
    if not isinstance(prompt, str | list) or not prompt:
        raise BodyError("no prompt", prompt, 'a text, or messages: {"prompt": …, "output_tokens": …}')
    if limit is not None and (type(limit) is not int or not 0 < limit <= _MOST_TOKENS):
        raise BodyError("output_tokens is no count", limit, "1 token or more")
    is_chat = isinstance(prompt, list) and isinstance(prompt[0], dict)
    said = prompt_of({"messages" if is_chat else "prompt": prompt}, context.seen) or ""
    return Conversation(f"line {line}", [*_asked(context, said, limit)])


VLLM_CUSTOM = TraceFormat(
    "vllm-custom",
    "vLLM's custom data set, JSON lines: prompt, output_tokens: texts, hashed here",
    SIGNS["vllm-custom"],
    lambda source, settings: read_conversations(source, settings, _custom),
    BLOCK_SIZE,
)
