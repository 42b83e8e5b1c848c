"""OpenAI's chat completions and completions, and Anthropic's messages: their bodies and answers.

Order: tools (or the older ``functions``), Anthropic's ``system``, messages. Both families' parts are read in
either, since gateways mix them. ``cache_control`` is no content.
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts.body import BodyError, Seen, listed, member
from kvcache_sim.workload.prompts.parts import call, part_of, text_parts, thinking, tools_of
from kvcache_sim.workload.prompts.segments import Chat, Message, Segment, kind_of_role

_SAID = ("content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning")
_SCHEMA = (
    "requests have a response_format ({}): not rendered, though OpenAI puts a schema before the messages"
)


def chat_of(body: dict[str, Any], seen: Seen) -> Chat:
    """Return the tools and messages of a body; BodyError if ``messages`` is no chat."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BodyError("not a chat", messages, 'messages: [{"role": …, "content": …}, …]')
    tools = [*listed(body.get("tools"), "tools"), *listed(body.get("functions"), "functions")]
    found: list[Message] = []
    if body.get("system") is not None:
        found.append(Message("system", tuple(text_parts(body["system"], "system", seen))))
    for message in messages:
        found += messages_of(message, seen)
    note_format(body.get("response_format"), seen)
    return Chat(tools_of(tools), tuple(found))


def note_format(asked: Any, seen: Seen) -> None:
    """Count a request whose answers have a schema."""
    if asked is not None and member(asked, "type") != "text":
        seen[_SCHEMA.format(str(member(asked, "type") or "a schema")[:40])] += 1


def messages_of(message: Any, seen: Seen) -> list[Message]:
    """Return a message; results of tools within it (Anthropic's) become messages of the role ``tool``."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BodyError("not a message", message, '{"role": …, "content": …}')
    role, content, found = message["role"], message.get("content"), []
    if role == "user" and isinstance(content, list):
        results = [part for part in content if str(member(part, "type")).endswith("tool_result")]
        content = [part for part in content if part not in results]
        found = [Message("tool", tuple(part_of(part, "tool_result", seen))) for part in results]
    if content or not found:
        found.append(Message(role, tuple(_parts(message, content, kind_of_role(role), seen))))
    return found


def _parts(message: dict[str, Any], content: Any, kind: str, seen: Seen) -> list[Segment]:
    reasoning = member(message, "reasoning_content", "reasoning")
    found = thinking(reasoning, seen) if isinstance(reasoning, str) and reasoning else []
    found += text_parts(content, kind, seen)
    if isinstance(message.get("refusal"), str):
        found += text_parts(message["refusal"], kind, seen)
    calls = listed(message.get("tool_calls"), "tool_calls")
    for asked in [*calls, *filter(None, [message.get("function_call")])]:
        function = member(asked, "function", "custom") or asked
        if not isinstance(function, dict):
            raise BodyError("not a call of a tool", asked, '{"function": {"name": …, "arguments": …}}')
        found.append(call(function.get("name"), member(function, "arguments", "input")))
    if isinstance(message.get("audio"), dict):
        found += part_of({"type": "audio", **message["audio"]}, kind, seen)
    return found


def completion_of(prompt: Any) -> str | list[int]:
    """Return the text or the token ids of a completion's prompt; BodyError for several prompts."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        return completion_of(prompt[0])
    if isinstance(prompt, list) and any(isinstance(each, str | list) for each in prompt):
        raise BodyError("several prompts in one request", prompt, "one prompt a line")
    if not isinstance(prompt, list) or not all(type(t) is int and 0 <= t < 2**32 for t in prompt):
        raise BodyError("not a list of token ids", prompt, "whole numbers below 2^32")
    return list(prompt)


def choice_of(choice: Any, seen: Seen) -> Message | None:
    """Return the answer of a choice; None without a text."""
    text = member(choice, "text")
    return said_by(member(choice, "message", "delta") if text is None else {"content": text}, seen)


def said_by(message: Any, seen: Seen) -> Message | None:
    """Return an assistant's message: its content and its calls of tools; None if it has no such member."""
    if member(message, *_SAID) is None:
        return None
    return Message("assistant", tuple(_parts(message, message.get("content"), "assistant", seen)))
