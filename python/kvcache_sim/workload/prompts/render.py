"""Chats as one prompt: the default rendering, and the pieces of a prompt that are tokenized together.

The layout is ChatML's, with tools first, for any model: a turn's prompt starts with the whole prompt and
answer of the previous turn, which is all that a prefix cache sees of any template. A marker of a message
(``<|im_start|>``, the role, a line) counts as 3 tokens and its end as 2 where tokens are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from kvcache_sim.workload.prompts.body import json_text
from kvcache_sim.workload.prompts.segments import Chat, Message, Prompt, Segment

#: The name of the default rendering, for people.
CHATML = "ChatML, tools first (the default)"
#: A prompt or an answer as a log has it: a chat, a message, text, segments or token ids; None without.
Said = str | Chat | Message | Prompt | list[int] | None
_CLOSES = Segment("template", "<|im_end|>\n", 2)


def _opens(role: str) -> Segment:
    return Segment("template", f"<|im_start|>{role}\n", 3)


def rendered(chat: Chat) -> Prompt:
    """Return the prompt of a chat, ready for the assistant's next answer."""
    found: list[Segment] = []
    if chat.tools:
        found += [_opens("tools"), *(_line(tool) for tool in chat.tools), _CLOSES]
    for message in chat.messages:
        found += [_opens(message.role), *shown(message), _CLOSES]
    return (*found, _opens("assistant"))


def _line(tool: Segment) -> Segment:
    return tool._replace(text=f"{tool.text}\n") if tool.text else tool


def shown(message: Message) -> Prompt:
    """Return the content of a message as it is rendered: thinking and calls of tools within their tags."""
    return tuple(_shown(part) for part in message.parts)


def _shown(part: Segment) -> Segment:
    if part.kind == "thinking" and part.text:
        return part._replace(text=f"<think>\n{part.text}\n</think>\n\n")
    if part.kind == "tool_call" and part.text:
        called = f'{{"name": {json_text(part.name)}, "arguments": {part.text}}}'
        return Segment("tool_call", f"<tool_call>\n{called}\n</tool_call>\n")
    return part


class Piece(NamedTuple):
    """Segments in a row that are one text; ``text`` is None for a segment of a known number of tokens."""

    segments: tuple[Segment, ...]
    text: str | None


def pieces(given: Said, render: Callable[[Chat], Prompt], is_exact: bool) -> Iterator[Piece]:
    """Yield the texts of a prompt or an answer that are tokenized together, and the segments between.

    Token ids have none. ``is_exact``: the text of markers counts too, since there is a tokenizer.
    """
    if given is None or isinstance(given, list):
        return
    prompt = given
    if isinstance(prompt, str):
        prompt = (Segment("", prompt),) if prompt else ()
    elif isinstance(prompt, Chat | Message):
        prompt = render(prompt) if isinstance(prompt, Chat) else shown(prompt)
    for is_text, row in groupby(prompt, lambda part: part.tokens is None or (is_exact and bool(part.text))):
        segments = tuple(row)
        if is_text:
            yield Piece(segments, "".join(segment.text for segment in segments))
        else:
            yield from (Piece((segment,), None) for segment in segments)


def opaque_tokens(segment: Segment, length: int | None = None) -> list[int]:
    """Return the tokens that stand for a segment without a text: equal kind, name and length are equal."""
    name = "\0".join((segment.kind, segment.name, segment.text))
    first = crc32(name.encode("utf-8", "surrogatepass"))
    return [(first + at) & 0xFFFFFFFF for at in range(segment.tokens or 0 if length is None else length)]
