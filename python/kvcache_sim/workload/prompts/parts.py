"""Parts of messages, of every family: texts, images, files, thinking, calls and results of tools.

Sources: OpenAI's reference of chat completions and Responses; Anthropic's of messages; OpenTelemetry's schema
of ``gen_ai.input.messages``. Sizes of images:
OpenAI, 85 + 170 for each of 4 tiles of 512 px (1,024 × 1,024 px in high detail), 85 in low; Anthropic, pixels
÷ 750 of 1,092 × 1,092; Gemini, a tile of 768 px. Files: Anthropic's 1,500 to 3,000 tokens a page, one page
assumed.
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, content_name, json_text, member
from kvcache_sim.workload.prompts.segments import Segment

_TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal")
_THINKING = ("thinking", "reasoning")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call")
_RESULTS = ("tool_result", "tool_call_response")
#: Tokens assumed of a part without text, by its type: (kind, tokens).
_SIZES = {
    "image_url": ("image", 765),
    "input_image": ("image", 765),
    "image": ("image", 1590),
    "inline_image": ("image", 258),
    "file": ("file", 2000),
    "input_file": ("file", 2000),
    "document": ("file", 2000),
    "input_audio": ("file", 2000),
    "audio": ("file", 2000),
    "video_url": ("file", 2000),
    "redacted_thinking": ("thinking", 100),
}
_LOW_DETAIL_TOKENS = 85
#: Members that are no content: markers of caches, signatures, names that tie a result to its call.
_NOT_CONTENT = ("cache_control", "signature", "id", "tool_use_id", "encrypted_content", "status")


def text_parts(content: Any, kind: str, seen: Seen) -> list[Segment]:
    """Return the segments of a message's content: a text, or a list of parts; BodyError for another value."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Segment(kind, content)]
    parts = [content] if isinstance(content, dict) else content
    if not isinstance(parts, list):
        raise BodyError("not a message's content", content, "a text, or a list of parts")
    return [segment for part in parts for segment in part_of(part, kind, seen)]


def part_of(part: Any, kind: str, seen: Seen) -> list[Segment]:
    """Return the segments of one part of a message; a part of an unknown type is rendered as JSON."""
    if isinstance(part, str):
        return text_parts(part, kind, seen)
    if not isinstance(part, dict):
        raise BodyError("not a part of a message", part, '{"type": …}')
    of_type = str(part.get("type") or ("text" if "text" in part else "without a type"))
    if of_type in _TEXTS and isinstance(text := member(part, "text", "refusal", "content"), str):
        return text_parts(text, kind, seen)
    if of_type in _THINKING:
        thought = (part.get(name) for name in ("thinking", "text", "content", "summary"))
        return thinking(next(filter(None, thought), None), seen)
    if of_type in _CALLS:
        return [call(part.get("name"), member(part, "input", "arguments"))]
    if of_type.endswith(_RESULTS):
        result = member(part, "content", "response", "result")
        result = result if isinstance(result, str | list | None) else json_text(result)
        return text_parts(result, "tool_result", seen)
    if of_type == "document" and member(part.get("source"), "type") in ("text", "content"):
        return text_parts(member(part["source"], "data", "content"), kind, seen)
    if of_type in _SIZES:
        return [opaque(of_type, part, seen)]
    seen[f"parts of the unknown type {of_type[:40]!r} are rendered as JSON"] += 1
    return [Segment(kind, json_text(without_markers(part)))]


def opaque(of_type: str, part: Any, seen: Seen) -> Segment:
    """Return the segment of a part that is not rendered: equal data are equal tokens."""
    kind, tokens = _SIZES[of_type]
    if "low" in (member(part.get("image_url"), "detail"), part.get("detail")):
        tokens = _LOW_DETAIL_TOKENS
    seen[f"{of_type} parts are not rendered: {tokens} tokens each unless counts say otherwise"] += 1
    return Segment(kind, tokens=tokens, name=content_name(without_markers(part)))


def thinking(said: Any, seen: Seen) -> list[Segment]:
    """Return the text of a model's thinking; blocks with a signature alone are counted."""
    text = "".join(segment.text for segment in text_parts(said, "thinking", seen))
    seen.update([] if text else ["thinking blocks have no text"])
    return [Segment("thinking", text)] if text else []


def call(name: Any, arguments: Any) -> Segment:
    """Return a call of a tool; its arguments are a text, or JSON."""
    text = arguments if isinstance(arguments, str) else json_text({} if arguments is None else arguments)
    return Segment("tool_call", text, name=str(name))


def without_markers(part: Any) -> Any:
    """Return an object without the members that are no content."""
    return {name: value for name, value in part.items() if name not in _NOT_CONTENT}


def tools_of(tools: Any) -> tuple[Segment, ...]:
    """Return the definitions of tools, in the order of the body; BodyError if they are no list."""
    if not isinstance(tools, list):
        raise BodyError("tools is no list", tools, "[{…}, …]")
    return tuple(Segment("tools", json_text(_definition(tool))) for tool in tools)


def _definition(tool: Any) -> Any:
    return {k: v for k, v in tool.items() if k != "cache_control"} if isinstance(tool, dict) else tool
