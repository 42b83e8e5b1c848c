"""Chats as one prompt: each message between marks, in a form whose beginning never changes later.

It is ChatML's layout, whatever the model: a turn's prompt begins with the whole prompt and answer of the turn
before it, which is what a prefix cache sees of any template.
"""

from __future__ import annotations

from kvcache_sim.live.parsing import Message

_OPENS = "<|im_start|>"
_CLOSES = "<|im_end|>\n"


def chat_prompt(messages: list[Message]) -> str:
    """Return the prompt of a chat, open for the assistant's next answer."""
    said = [f"{_OPENS}{m.role}\n{m.text}{_CLOSES}" for m in messages]
    return "".join([*said, f"{_OPENS}assistant\n"])
