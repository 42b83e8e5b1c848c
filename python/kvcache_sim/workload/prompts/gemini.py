"""Gemini's ``generateContent``: tools, system instruction and contents; an answer's candidates.

Source: ai.google.dev, API reference of ``Content`` and ``Part``. Contents are read as Anthropic messages.
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, json_text, listed, member
from kvcache_sim.workload.prompts.messages import messages_of, said_by
from kvcache_sim.workload.prompts.parts import tools_of
from kvcache_sim.workload.prompts.segments import Chat, Message

_ROLES = {"model": "assistant", "function": "user"}


def chat_of(body: dict[str, Any], seen: Seen) -> Chat:
    """Return the tools and messages of a body; BodyError for contents that are none."""
    system, contents = member(body, "systemInstruction", "system_instruction"), body["contents"]
    said = [] if system is None else [{**_message(system), "role": "system"}]
    said += map(_message, contents if isinstance(contents, list) else [contents])
    if member(body, "cachedContent", "cached_content") is not None:
        seen["requests name a cachedContent, which is not in the log"] += 1
    tools = tools_of(listed(body.get("tools"), "tools"))
    return Chat(tools, tuple(message for each in said for message in messages_of(each, seen)))


def _message(content: Any) -> dict[str, Any]:
    """Return a content as a message; a text alone counts as one, as in Google's libraries."""
    if isinstance(content, str):
        return {"role": "user", "content": content}
    if not isinstance(content, dict):
        raise BodyError("not a content", content, '{"role": …, "parts": […]}')
    role, parts = str(content.get("role") or "user"), content.get("parts")
    parts = [parts] if isinstance(parts, dict | str) else listed(parts, "parts")
    return {"role": _ROLES.get(role, role), "content": [_part(part) for part in parts]}


def _part(part: Any) -> Any:
    """Return a part in Anthropic's form; one of an unknown form as it is."""
    if isinstance(text := member(part, "text"), str):
        return {"type": "thinking" if part.get("thought") is True else "text", "text": text}
    if (asked := member(part, "functionCall", "function_call")) is not None:
        return {"type": "tool_use", "name": member(asked, "name"), "input": member(asked, "args")}
    if (result := member(part, "functionResponse", "function_response")) is not None:
        return {"type": "tool_result", "content": json_text(member(result, "response"))}
    if (data := member(part, "inlineData", "inline_data", "fileData", "file_data")) is not None:
        is_image = str(member(data, "mimeType", "mime_type")).startswith("image/")
        return {"type": "inline_image" if is_image else "file", "source": data}
    return part


def answer_of(candidates: list[Any], seen: Seen) -> Message | None:
    """Return the first candidate's content; None without one."""
    content = member(candidates[0], "content") if candidates else None
    return None if content is None else said_by(_message(content), seen)
