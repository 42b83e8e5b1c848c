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
    "file",
    "template",
)


class Segment(NamedTuple):
    """A piece of a prompt.

    ``tokens`` is its length where the log knows it, or assumes it (an image); None: the tokens of ``text``. A
    segment without ``text`` is known by ``name``: equal kind, name and length are equal tokens. With both
    (the markers of a template), the text counts where there is a tokenizer. A ``tool_call`` of a message has
    the function's name, and its arguments as text.
    """

    kind: str
    text: str = ""
    tokens: int | None = None
    name: str = ""


#: A whole prompt in rendered order.
Prompt = tuple[Segment, ...]


class Message(NamedTuple):
    """A message of a chat: its role, and its content in order."""

    role: str
    parts: tuple[Segment, ...]


class Chat(NamedTuple):
    """A prompt before it is rendered: definitions of tools (JSON as text), and messages, system's first."""

    tools: tuple[Segment, ...]
    messages: tuple[Message, ...]


#: The kind of a message's text by its role; other roles are ``user``.
KIND_OF_ROLE = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool_result",
    "function": "tool_result",
}


def kind_of_role(role: str) -> str:
    """Return the kind of the text of a role's messages."""
    return KIND_OF_ROLE.get(role, "user")
