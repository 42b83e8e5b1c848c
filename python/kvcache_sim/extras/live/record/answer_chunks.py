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
        if isinstance(of_type := chunk.get("type"), str):
            return self._add_event(of_type, chunk)
        self._count(chunk.get("usage"))
        continued = 0
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            text = choice.get("text") or delta.get("content") or ""
            thought = member(delta, "reasoning_content", "reasoning") or ""
            calls = delta.get("tool_calls") or ()
            continued += bool(text or thought or calls)
            if choice.get("index"):
                continue
            self._say(text, thought)
            for call in calls:
                function = call.get("function") or {}
                self._call(call.get("index") or 0, function.get("name"), function.get("arguments"))
        return continued

    def _add_event(self, of_type: str, chunk: dict[str, Any]) -> int:
        """Add an event of Anthropic's messages or of Responses."""
        self._count(member(member(chunk, "message", "response") or chunk, "usage"))
        if of_type in _ENDS:
            self.whole = chunk.get("response")
        if of_type.startswith("response."):
            return of_type.endswith(_PARTS)
        at, block, delta = chunk.get("index") or 0, chunk.get("content_block"), chunk.get("delta") or {}
        if member(block, "name") is not None:
            self._call(at, member(block, "name"), "")
        if (arguments := delta.get("partial_json")) is not None:
            self._call(at, "", arguments)
        text, thought = delta.get("text") or "", delta.get("thinking") or ""
        self._say(text, thought)
        return bool(text or thought or arguments)

    def _say(self, text: str, thought: str) -> None:
        self.said += [text] if text else []
        self.thought += [thought] if thought else []

    def _call(self, index: int, name: Any, arguments: Any) -> None:
        before = self.calls.get(index, ("", ""))
        self.calls[index] = (before[0] + (name or ""), before[1] + (arguments or ""))

    def _count(self, usage: Any) -> None:
        """Keep counts; those of Anthropic's stream come in two parts."""
        if isinstance(usage, dict):
            self.usage = {**(self.usage or {}), **usage}

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
