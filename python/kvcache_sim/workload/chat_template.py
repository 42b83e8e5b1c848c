"""Chats as a single prompt with markers around each message; a prefix never changes in later turns.

The layout is ChatML's, for any model: a turn's prompt starts with the whole prompt and answer of the previous
turn, which is all that a prefix cache sees of any template.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_OPENS = "<|im_start|>"
_CLOSES = "<|im_end|>\n"


class ChatMessage(NamedTuple):
    """A message of a chat: who speaks, and what."""

    role: str
    text: str


def chat_prompt(messages: Iterable[ChatMessage]) -> str:
    """Return the prompt of a chat, ready for the assistant's next answer."""
    said = [f"{_OPENS}{role}\n{text}{_CLOSES}" for role, text in messages]
    return "".join([*said, f"{_OPENS}assistant\n"])
