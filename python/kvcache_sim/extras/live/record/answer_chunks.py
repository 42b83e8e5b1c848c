"""The chunks of an answer put together: chat completions, completions, Anthropic's messages, Responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, member
from kvcache_sim.workload.prompts.read import answer_of
from kvcache_sim.workload.prompts.segments import Message

#: Events of a Responses stream with a part of the answer, and those with the whole of it.
_PARTS = (".output_text.delta", ".reasoning_text.delta", ".reasoning_summary_text.delta", "_arguments.delta")
_ENDS = ("response.completed", "response.incomplete")


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

    def add(self, chunk: dict[str, Any]) -> int:
        """Add a chunk of a stream; return the number of answers that it continues."""
        of_type, counted = str(chunk.get("type")), member(chunk, "message", "response") or chunk
        if isinstance(usage := counted.get("usage"), dict):  # Anthropic's come in two parts
            self.usage = {**(self.usage or {}), **usage}
        if of_type in _ENDS:
            self.whole = chunk.get("response")
        if of_type.startswith("response."):
            return of_type.endswith(_PARTS)
        choices = chunk.get("choices")
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
