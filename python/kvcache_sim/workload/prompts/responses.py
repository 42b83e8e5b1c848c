"""OpenAI's Responses: ``instructions``, ``tools`` and items of ``input``; an answer's items of ``output``.

With ``previous_response_id`` the input has only new items: a log's reader joins the chain (``joined``).
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, listed, member
from kvcache_sim.workload.prompts.messages import messages_of, note_format
from kvcache_sim.workload.prompts.parts import tools_of
from kvcache_sim.workload.prompts.segments import Chat, Message

_NOT_LOGGED = {
    "prompt": "requests name a stored prompt, which is not in the log",
    "conversation": "requests name a conversation, whose history is not in the log",
}


def chat_of(body: dict[str, Any], seen: Seen) -> Chat:
    """Return the tools, instructions and input of a body; BodyError for items that are none."""
    given, system = body.get("input"), body.get("instructions")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else listed(given, "input")
    items = items if system is None else [{"role": "system", "content": system}, *items]
    for name, said in _NOT_LOGGED.items():
        seen.update([said] if body.get(name) is not None else [])
    note_format(member(body.get("text"), "format"), seen)
    return Chat(tools_of(listed(body.get("tools"), "tools")), joined((), items_of(items, seen)))


def joined(before: tuple[Message, ...], after: list[Message] | tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages in a row; items of one answer (thinking, calls, text) are one assistant's message."""
    found = list(before)
    for message in after:
        if found and message.role == found[-1].role == "assistant":
            message = Message("assistant", found.pop().parts + message.parts)
        found.append(message)
    return tuple(found)


def items_of(items: list[Any], seen: Seen) -> list[Message]:
    """Return the messages of items of ``input`` or ``output``."""
    return [message for item in items for message in messages_of(_message(item), seen)]


def _message(item: Any) -> dict[str, Any]:
    """Return an item as a message of a chat; one of an unknown type is its only part."""
    if not isinstance(item, dict):
        raise BodyError("not an item of a response", item, '{"type": …}')
    of_type = str(item.get("type") or "message")
    if of_type == "message":
        return {"role": "user", **item}
    if of_type in ("function_call", "custom_tool_call"):
        return {"role": "assistant", "tool_calls": [{"function": item}]}
    if of_type.endswith("_call_output"):
        return {"role": "tool", "content": item.get("output")}
    return {"role": "assistant" if of_type.endswith(("_call", "reasoning")) else "user", "content": [item]}


def answer_of(output: Any, seen: Seen) -> Message | None:
    """Return the items of an answer as one message; None for a value that is no list."""
    if isinstance(output, str):
        output = [{"role": "assistant", "content": output}]
    if not isinstance(output, list):
        return None
    return Message("assistant", tuple(part for item in items_of(output, seen) for part in item.parts))
