"""A request's body or an answer of any family, recognized by its members."""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.prompts import gemini, messages, responses
from kvcache_sim.workload.prompts.body import Seen, member
from kvcache_sim.workload.prompts.segments import Chat, Message

#: Members of which a body of a request has one.
BODY_MEMBERS = ("messages", "contents", "prompt", "input", "instructions")

#: Members of a body of Responses that one of embeddings has not.
_RESPONSES = {
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "tools",
    "store",
    "reasoning",
    "text",
}


def prompt_of(body: Any, seen: Seen) -> Chat | str | list[int] | None:
    """Return the prompt of a request's body.

    Args:
        body: OpenAI's chat completions, completions or Responses, Anthropic's messages, or Gemini's contents.
        seen: Counts what is not rendered, or assumed.

    Returns:
        A chat (not rendered yet), the text or token ids of a completion, None for a body of none of them.

    Raises:
        BodyError: The body is of a family, and wrong.
    """
    if member(body, "messages") not in (None, {}):  # LiteLLM logs {} where it keeps no texts
        return messages.chat_of(body, seen)
    if member(body, "contents") is not None:
        return gemini.chat_of(body, seen)
    prompt = member(body, "prompt")
    if isinstance(prompt, str | list):
        return messages.completion_of(prompt)
    if member(body, "input", "instructions") is not None:
        return responses.chat_of(body, seen)
    return None if prompt is None else messages.completion_of(prompt)


def is_embedding(body: Any, response: Any) -> bool:
    """Return True for a request of embeddings, whose ``input`` is that of no Responses."""
    given = member(body, "input")
    is_texts = isinstance(given, str | list) and not any(isinstance(each, dict) for each in given)
    return is_texts and not _RESPONSES & set(body) and member(response, "output", "output_text") is None


def answer_of(response: Any, seen: Seen) -> Message | None:
    """Return the answer in a response of any family (the first of several), as the next prompt repeats it.

    None if the response has no answer: errors, responses without texts.
    """
    if isinstance(response, str):
        return responses.answer_of(response, seen)
    choices = member(response, "choices")
    if isinstance(choices, list) and choices:
        return messages.choice_of(choices[0], seen)
    candidates = member(response, "candidates")
    if isinstance(candidates, list):
        return gemini.answer_of(candidates, seen)
    if (output := member(response, "output", "output_text")) is not None:
        return responses.answer_of(output, seen)
    return messages.said_by(member(response, "message") or response, seen)
