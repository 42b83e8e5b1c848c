"""Gemini's ``generateContent``: tools, system instruction and contents; an answer's candidates.

Source: ai.google.dev, API reference of ``Content`` and ``Part``. An image of at most 384 px a side, or a tile
of 768 px, has 258 tokens.
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, content_name, json_text, listed, member
from kvcache_sim.workload.prompts.parts import call, text_parts, tools_of
from kvcache_sim.workload.prompts.segments import Chat, Message, Segment, kind_of_role

_IMAGE_TOKENS, _FILE_TOKENS = 258, 2000
_RESULTS = ("functionResponse", "function_response")


def chat_of(body: dict[str, Any], seen: Seen) -> Chat:
    """Return the tools and messages of a body; BodyError for contents that are none."""
    found: list[Message] = []
    system = member(body, "systemInstruction", "system_instruction")
    if system is not None:
        found.append(message_of(system, "system", seen))
    contents = body.get("contents")
    if not isinstance(contents, list):
        contents = [contents]
    found += [message_of(content, "user", seen) for content in contents]
    if member(body, "cachedContent", "cached_content") is not None:
        seen["requests name a cachedContent, which is not in the log"] += 1
    return Chat(tools_of(listed(body.get("tools"), "tools")), tuple(found))


def message_of(content: Any, role: str, seen: Seen) -> Message:
    """Return a content; a text alone counts as one, as in Google's libraries."""
    if isinstance(content, str):
        return Message(role, tuple(text_parts(content, kind_of_role(role), seen)))
    if not isinstance(content, dict):
        raise BodyError("not a content", content, '{"role": …, "parts": […]}')
    role = "system" if role == "system" else str(content.get("role") or role)
    role = {"model": "assistant", "function": "tool"}.get(role, role)
    parts = content.get("parts")
    parts = parts if isinstance(parts, list) else [] if parts is None else [parts]
    if any(member(part, *_RESULTS) is not None for part in parts):
        role = "tool"
    return Message(role, tuple(segment for part in parts for segment in _part(part, role, seen)))


def _part(part: Any, role: str, seen: Seen) -> list[Segment]:
    kind = kind_of_role(role)
    if isinstance(part, str):
        return text_parts(part, kind, seen)
    if not isinstance(part, dict):
        raise BodyError("not a part of a content", part, '{"text": …}')
    if isinstance(part.get("text"), str):
        return text_parts(part["text"], "thinking" if part.get("thought") is True else kind, seen)
    if (asked := member(part, "functionCall", "function_call")) is not None:
        return [call(member(asked, "name"), member(asked, "args"))]
    if (result := member(part, *_RESULTS)) is not None:
        return [Segment("tool_result", json_text(member(result, "response")))]
    if (data := member(part, "inlineData", "inline_data", "fileData", "file_data")) is not None:
        is_image = str(member(data, "mimeType", "mime_type")).startswith("image/")
        what, tokens = ("image", _IMAGE_TOKENS) if is_image else ("file", _FILE_TOKENS)
        seen[f"{what} parts are not rendered: {tokens} tokens each unless counts say otherwise"] += 1
        return [Segment(what, tokens=tokens, name=content_name(data))]
    names = ", ".join(sorted(part))[:40]
    seen[f"parts with the members {names!r} are rendered as JSON"] += 1
    return [Segment(kind, json_text(part))]


def answer_of(candidates: list[Any], seen: Seen) -> Message | None:
    """Return the first candidate's content; None without one."""
    content = member(candidates[0], "content") if candidates else None
    return None if content is None else message_of(content, "assistant", seen)
