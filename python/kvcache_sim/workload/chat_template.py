"""Chats as one prompt: each message between marks, in a form whose beginning never changes later.

It is ChatML's layout, whatever the model: a turn's prompt begins with the whole prompt and answer of the turn
before it, which is what a prefix cache sees of any template.
"""

from __future__ import annotations

from collections.abc import Iterable

_OPENS = "<|im_start|>"
_CLOSES = "<|im_end|>\n"


def chat_prompt(messages: Iterable[tuple[str, str]]) -> str:
    """Return the prompt of a chat of (role, text), open for the assistant's next answer."""
    said = [f"{_OPENS}{role}\n{text}{_CLOSES}" for role, text in messages]
    return "".join([*said, f"{_OPENS}assistant\n"])
