"""Token counts as each vendor means them: the whole prompt, the answer, and the cached part of the prompt.

OpenAI's, Gemini's and vLLM's prompt includes cached tokens. Anthropic's ``input_tokens`` (and Bedrock's) is
only what follows the last breakpoint: prompt = input + read + written. LiteLLM's ``prompt_tokens`` of a
Claude may leave out what was read or written: parts that exceed it are added.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvcache_sim.workload.prompts.body import count, member

#: Whole prompts; a prompt without what was read or written apart from it; answers.
_WHOLE = ("prompt_tokens", "promptTokenCount", "prompt_token_count", "promptTokens")
_UNCACHED = ("input_tokens", "inputTokens")
_ANSWERS = (
    "completion_tokens", "output_tokens", "candidatesTokenCount", "candidates_token_count", "outputTokens",
    "completionTokens",
)  # fmt: skip
_THOUGHTS = ("thoughtsTokenCount", "thoughts_token_count")
_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_WRITTEN = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_CACHED = (
    "cached_tokens", "prompt_cache_hit_tokens", "cachedContentTokenCount", "cached_content_token_count",
)  # fmt: skip
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


class Usage(NamedTuple):
    """Tokens of the whole prompt, of the answer, and of the prompt's part that was cached; None: unknown."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None


def usage_of(*rows: Any) -> Usage:
    """Return each count of the first row that has it; BodyError for counts that are none."""
    found = zip(*(_usage(row) for row in rows), strict=True)
    return Usage(*(next((number for number in each if number is not None), None) for each in found))


def _usage(row: Any) -> Usage:
    whole, uncached = count(row, *_WHOLE), count(row, *_UNCACHED)
    read, written = count(row, *_READ), _written(row)
    cached = count(member(row, *_DETAILS), "cached_tokens")
    cached = count(row, *_CACHED) if cached is None else cached
    cached = cached if read is None else max(read, cached or 0)
    parts = (cached or 0) + (written or 0)
    is_apart = whole is None and (read is not None or written is not None)
    inputs = uncached if whole is None else whole
    if inputs is not None and (is_apart or parts > inputs):
        inputs += parts
    outputs, thoughts = count(row, *_ANSWERS), count(row, *_THOUGHTS)
    return Usage(inputs, outputs if thoughts is None else (outputs or 0) + thoughts, cached)


def _written(row: Any) -> int | None:
    written, by_lifetime = count(row, *_WRITTEN), member(row, "cache_creation")
    if written is None and isinstance(by_lifetime, dict):
        return sum(count(by_lifetime, name) or 0 for name in by_lifetime)
    return written
