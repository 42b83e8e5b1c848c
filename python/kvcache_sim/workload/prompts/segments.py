"""The pieces of a prompt in rendered order: tools, system, messages, calls and results of tools, images."""

from __future__ import annotations

from typing import NamedTuple

#: Kinds of segments, as the column ``segments`` of a trace names them.
SEGMENT_KINDS = (
    "tools",
    "system",
    "user",
    "assistant",
    "thinking",
    "tool_call",
    "tool_result",
    "image",
    "template",
)


class Segment(NamedTuple):
    """A piece of a prompt.

    ``tokens`` is its length where the log knows it, or assumes it (an image); None: the tokens of ``text``. A
    segment without ``text`` is known by ``name``: equal kind, name and length are equal tokens.
    """

    kind: str
    text: str = ""
    tokens: int | None = None
    name: str = ""


#: A whole prompt, or a whole answer.
Prompt = tuple[Segment, ...]
