"""The chunks of an answer put together: chat completions, completions, Anthropic's, Gemini's, Responses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, member
from kvcache_sim.workload.prompts.read import answer_of
from kvcache_sim.workload.prompts.segments import Message

#: Events of a Responses stream with a part of the answer, and those with the whole of it.
_PARTS = (".output_text.delta", ".reasoning_text.delta", ".reasoning_summary_text.delta", "_arguments.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
#: How the lines of a stream begin; a chunk has one of the members, or is an event of one of the types.
_LINES, _MEMBERS = ("data:", "event:", ":"), ("choices", "candidates", "usageMetadata")
_EVENTS = ("message_", "content_block_", "response.", "ping", "error")


def joined(response: Any) -> Any:
    """Return an answer as it was logged: the text, the lines or the chunks of a stream as one response.

    Another value is returned as it is. Raises BodyError for chunks of another form.
    """
    chunks = _chunks(response)
    if not chunks:
        return response
    found = AnswerChunks()
    try:
        for chunk in chunks:
            found.add(chunk)
        return found.response()
    except (AttributeError, TypeError):
        raise BodyError("not the chunks of an answer", response) from None


def _chunks(response: Any) -> list[dict[str, Any]]:
    """Return the chunks of a stream; none of another value."""
    given = response if isinstance(response, list) else [response]
    if given and all(isinstance(text, str) for text in given):
        starts = [text.lstrip().startswith(_LINES) for text in given]
        lines = ("\n" if all(starts) else "").join(given).splitlines() if starts[0] else []
        values = [_value(line[5:]) for line in map(str.lstrip, lines) if line.startswith("data:")]
        return [value for value in values if isinstance(value, dict)]
    return given if isinstance(response, list) and all(map(_is_chunk, given)) else []


def _is_chunk(value: Any) -> bool:
    return member(value, *_MEMBERS) is not None or str(member(value, "type")).startswith(_EVENTS)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # [DONE]
        return None


@dataclass(slots=True)
class AnswerChunks:
    """The first answer of a response: its texts, thinking and calls of tools, and the counts."""

    usage: dict[str, Any] | None = None
    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    #: Name and arguments of each call of a tool, by its index.
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: A response that came in one piece.
    whole: dict[str, Any] | None = None
    error: Any = None

    def add(self, chunk: dict[str, Any]) -> int:
        """Add a chunk of a stream; return the number of answers that it continues."""
        of_type, counted = str(chunk.get("type")), member(chunk, "message", "response") or chunk
        if isinstance(usage := member(counted, "usage", "usageMetadata"), dict):  # Anthropic's has two parts
            self.usage = {**(self.usage or {}), **usage}
        self.error = chunk.get("error") or self.error
        if of_type in _ENDS:
            self.whole = chunk.get("response")
        if of_type.startswith("response."):
            return of_type.endswith(_PARTS)
        choices = chunk.get("choices")
        if chunk.get("candidates") is not None:
            said = answer_of(chunk, Seen())
            return self._continue(_gemini(said, len(self.calls))) if said else False
        if choices is None:
            return self._continue(_anthropic(chunk))
        return sum(self._continue({**choice, **(choice.get("delta") or {})}) for choice in choices)

    def _continue(self, delta: dict[str, Any]) -> bool:
        """Add a part of an answer; only the first answer is kept."""
        text, calls = member(delta, "text", "content") or "", delta.get("tool_calls") or ()
        thought = member(delta, "reasoning_content", "reasoning", "thinking") or ""
        if not delta.get("index"):
            self.said += [text] if text else []
            self.thought += [thought] if thought else []
            for call in calls:
                function, at = call.get("function") or {}, call.get("index") or 0
                name, arguments = self.calls.get(at, ("", ""))
                added = function.get("name") or "", function.get("arguments") or ""
                self.calls[at] = (name + added[0], arguments + added[1])
        return bool(text or thought or calls)

    def end(self, whole: dict[str, Any]) -> None:
        """Take a response that was not a stream."""
        self.whole, self.usage = whole, whole.get("usage")

    def message(self) -> Message | None:
        """Return the answer; None without one."""
        try:
            return answer_of(self.whole or {"message": self.as_message()}, Seen())
        except BodyError:
            return None

    def response(self) -> dict[str, Any]:
        """Return the answer as a response that came in one piece."""
        said = [{"message": self.as_message()}] if self.said or self.thought or self.calls else None
        return self.whole or {"choices": said, "usage": self.usage, "error": self.error}

    def as_message(self) -> dict[str, Any]:
        """Return the answer as a message of a chat."""
        calls = [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in self.calls.values()
        ]
        message = {"role": "assistant", "content": "".join(self.said)}
        thought = {"reasoning_content": "".join(self.thought)} if self.thought else {}
        return {**message, **thought, **({"tool_calls": calls} if calls else {})}


def _anthropic(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event of Anthropic's messages as a part of an answer of a chat."""
    delta = event.get("delta") or {}
    name, arguments = member(event.get("content_block"), "name"), delta.get("partial_json")
    call = {"index": event.get("index"), "function": {"name": name, "arguments": arguments}}
    return {**delta, "tool_calls": [call] if name or arguments else []}


def _gemini(said: Message, calls: int) -> dict[str, Any]:
    """Return a part of Gemini's answer as one of a chat's, behind as many calls of tools."""
    texts = {
        kind: "".join(part.text for part in said.parts if part.kind == kind)
        for kind in ("assistant", "thinking")
    }
    asked = [part for part in said.parts if part.kind == "tool_call"]
    functions = [{"name": part.name, "arguments": part.text} for part in asked]
    numbered = [{"index": calls + at, "function": function} for at, function in enumerate(functions)]
    return {"content": texts["assistant"], "thinking": texts["thinking"], "tool_calls": numbered}
