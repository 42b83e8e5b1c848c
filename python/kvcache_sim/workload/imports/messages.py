"""Bodies of OpenAI requests and answers as a proxy, a gateway or a load generator logs them."""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.chat_template import ChatMessage, chat_prompt
from kvcache_sim.workload.imports.source import count_of, member, problem, tokens_of


def prompt_of(number: int, body: dict[str, Any]) -> str | list[int] | None:
    """Return the prompt text or tokens of a body; None if it has neither messages nor a prompt."""
    messages = body.get("messages")
    if messages is not None:
        if not isinstance(messages, list) or not messages:
            raise problem(number, "not a chat", messages, 'messages: [{"role": …, "content": …}, …]')
        return chat_prompt(_said(number, message) for message in messages)
    prompt = body.get("prompt")
    if prompt is None or isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        return prompt[0] if isinstance(prompt[0], str) else tokens_of(number, prompt[0])
    return tokens_of(number, prompt)


def _said(number: int, message: Any) -> ChatMessage:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise problem(number, "not a message", message, '{"role": …, "content": …}')
    return ChatMessage(message["role"], text_of(message.get("content")))


def text_of(content: Any) -> str:
    """Return the text of a message; of its parts, the text parts; of an image or a tool call, none."""
    if isinstance(content, list):
        return "".join(text for part in content if isinstance(text := member(part, "text"), str))
    return content if isinstance(content, str) else ""


def answer_of(response: Any) -> str | None:
    """Return the text of an answer's first choice; None if the log has no text."""
    choices = member(response, "choices")
    if isinstance(choices, list) and choices:
        said = member(choices[0], "text")
        message = member(choices[0], "message", "delta")
        said = member(message, "content") if said is None else said
        return text_of(said) if said is not None else None
    return None


def counted(number: int, usage: Any) -> tuple[int | None, int | None, int | None]:
    """Return the prompt's, the answer's and the cached tokens of a log's usage counts."""
    details = member(usage, "prompt_tokens_details", "input_tokens_details")
    return (
        count_of(number, usage, "prompt_tokens", "input_tokens"),
        count_of(number, usage, "completion_tokens", "output_tokens"),
        count_of(number, details, "cached_tokens") if details else count_of(number, usage, "cached_tokens"),
    )
