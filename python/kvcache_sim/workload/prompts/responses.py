"""OpenAI's Responses: ``instructions``, ``tools`` and items of ``input``; an answer's items of ``output``.

With ``previous_response_id`` the input has only new items: a log's reader joins the chain (``joined``).
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, json_text, listed, member
from kvcache_sim.workload.prompts.messages import note_format
from kvcache_sim.workload.prompts.parts import call, text_parts, thinking, tools_of, without_markers
from kvcache_sim.workload.prompts.segments import Chat, Message, Segment, kind_of_role

_NOT_LOGGED = {
    "prompt": "requests name a stored prompt, which is not in the log",
    "conversation": "requests name a conversation, whose history is not in the log",
}


def chat_of(body: dict[str, Any], seen: Seen) -> Chat:
    """Return the tools, instructions and input of a body; BodyError for items that are none."""
    found: list[Message] = []
    if body.get("instructions") is not None:
        found.append(Message("system", tuple(text_parts(body["instructions"], "system", seen))))
    given = body.get("input")
    if isinstance(given, str):
        found.append(Message("user", tuple(text_parts(given, "user", seen))))
    else:
        found += items_of(listed(given, "input"), seen)
    for name, said in _NOT_LOGGED.items():
        seen.update([said] if body.get(name) is not None else [])
    note_format(member(body.get("text"), "format"), seen)
    return Chat(tools_of(listed(body.get("tools"), "tools")), joined((), found))


def joined(before: tuple[Message, ...], after: list[Message] | tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages in a row; items of one answer (thinking, calls, text) are one assistant's message."""
    found = list(before)
    for message in after:
        if found and message.role == found[-1].role == "assistant":
            message = Message("assistant", found.pop().parts + message.parts)
        found.append(message)
    return tuple(found)


def items_of(items: list[Any], seen: Seen) -> list[Message]:
    """Return one message an item of ``input`` or ``output``."""
    return [_item(item, seen) for item in items]


def _item(item: Any, seen: Seen) -> Message:
    if isinstance(item, str):
        return Message("user", tuple(text_parts(item, "user", seen)))
    if not isinstance(item, dict):
        raise BodyError("not an item of a response", item, '{"type": …}')
    of_type = str(item.get("type") or "message")
    if of_type == "message":
        role = str(item.get("role") or "user")
        return Message(role, tuple(text_parts(item.get("content"), kind_of_role(role), seen)))
    if of_type in ("function_call", "custom_tool_call"):
        return Message("assistant", (call(item.get("name"), member(item, "arguments", "input")),))
    if of_type.endswith("_call_output"):
        return Message("tool", tuple(text_parts(item.get("output"), "tool_result", seen)))
    if of_type == "reasoning":
        said = member(item, "content") or member(item, "summary")
        return Message("assistant", tuple(thinking(said, seen)))
    seen[f"items of the type {of_type[:40]!r} are rendered as JSON"] += 1
    kind = "tool_call" if of_type.endswith("_call") else "user"
    segment = call(of_type, without_markers(item)) if kind == "tool_call" else Segment(kind, json_text(item))
    return Message("assistant" if kind == "tool_call" else "user", (segment,))


def answer_of(output: Any, seen: Seen) -> Message | None:
    """Return the items of an answer as one message; None for a value that is no list."""
    if isinstance(output, str):
        return Message("assistant", tuple(text_parts(output, "assistant", seen)))
    if not isinstance(output, list):
        return None
    items = items_of(output, seen)
    return Message("assistant", tuple(segment for item in items for segment in item.parts))
