"""Calls as LiteLLM, Langfuse and OpenAI's batches keep them.

Sources: LiteLLM's ``LiteLLM_SpendLogs`` (schema.prisma) and ``StandardLoggingPayload`` (docs, logging_spec);
Langfuse's Observation schema; OpenAI's batch guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvcache_sim.workload.imports.calls import (
    SESSIONS,
    Call,
    answered,
    at,
    body_of,
    log_of_calls,
    of_text,
    wrong_of,
)
from kvcache_sim.workload.imports.source import problem
from kvcache_sim.workload.prompts.body import count, member
from kvcache_sim.workload.readers.dates import time_ns
from kvcache_sim.workload.readers.format import first_object

_STARTS, _FIRST = ("startTime", "start_time"), ("completionStartTime", "completion_start_time")
_LITELLM_ONLY = {"call_type", "cache_hit", "custom_llm_provider", "proxy_server_request", "spend"}
#: Texts that LiteLLM writes instead of the messages, or of their middle.
_NOT_KEPT = ("redacted-by-litellm", "litellm_truncated")


def _is_litellm(head: bytes) -> bool:
    members = first_object(head).keys()
    return not members.isdisjoint(_LITELLM_ONLY) and not members.isdisjoint(_STARTS)


def _litellm(number: int, row: Any) -> Iterator[Call]:
    response = answered(member(row, "response"))
    wrong = wrong_of(row, of_text(member(row, "metadata")), response)
    if str(member(row, "cache_hit")).lower() == "true":
        wrong = "answered by LiteLLM's own cache"
    elif "embedding" in str(member(row, "call_type")):
        wrong = "an embedding: no request for a generation"
    first = time_ns(member(row, *_FIRST))
    yield Call(
        time_ns(member(row, *_STARTS)),
        _litellm_body(row),
        response,
        (at(row, "metadata/usage_object"), at(row, "response/usage"), row),
        at(row, *SESSIONS),
        None if first == time_ns(member(row, "endTime", "end_time")) else first,
        wrong,
    )


def _litellm_body(row: Any) -> Any:
    """Return the body of a call: the proxy's for chats, else the messages; None if it is not kept whole."""
    body = body_of(member(row, "proxy_server_request")) or body_of(member(row, "messages"))
    if isinstance(body, dict):
        settings = at(row, "model_parameters")
        body = {**settings, **body} if isinstance(settings, dict) else body
    return None if any(text in str(body) for text in _NOT_KEPT) else body


_OTHERS = ("SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
_LANGFUSE_ONLY = ("usageDetails", "usage_details", "parentObservationId", "parent_observation_id")
_COUNTED = ("input", "output", "total", "cache", "prompt", "completion")
#: Counts of tokens written to a cache, not read from it.
_WRITTEN = re.compile("creat|writ")


def _is_langfuse(head: bytes) -> bool:
    row = first_object(head)
    is_named = row.get("type") in ("GENERATION", *_OTHERS) or not row.keys().isdisjoint(_LANGFUSE_ONLY)
    return is_named and not row.keys().isdisjoint(("traceId", "trace_id"))


def _langfuse(number: int, row: Any) -> Iterator[Call]:
    if not isinstance(row, dict):
        raise problem(number, "not an observation of Langfuse", row, "an object")
    kind = str(row.get("type") or "GENERATION")
    wrong = "answered with an error" if row.get("level") == "ERROR" else wrong_of(row)
    if kind != "GENERATION":
        named = kind if kind in _OTHERS else "of another type"
        wrong = f"an observation that is no call of a model: {named}"
    given, said = of_text(member(row, "input")), answered(member(row, "output"))
    said = said[0] if isinstance(said, list) and said else said
    is_message = isinstance(said, dict) and "choices" not in said
    yield Call(
        time_ns(member(row, *_STARTS)),
        body_of(given) or body_of(row.get("input")),
        {"choices": [{"message": said}]} if is_message else said,
        (_langfuse_usage(row),),
        member(row, "sessionId", "session_id"),
        time_ns(member(row, *_FIRST)),
        wrong,
        at(row, "modelParameters/max_tokens", "model_parameters/max_tokens"),
        str(member(row, "id") or ""),
        str(member(row, "parentObservationId", "parent_observation_id")),
    )


def _langfuse_usage(row: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of an observation: ``usageDetails`` has parts of the prompt, others the whole.

    Some integrations leave the cached tokens inside ``input``: then it adds up to the total with the output.
    """
    details = at(row, "usageDetails", "usage_details", "usage") or row
    counts = {
        name: count(details, name) or 0
        for name, value in (details.items() if isinstance(details, dict) else ())
        if name.startswith(_COUNTED) and isinstance(value, int | float)
    }
    uncached, answer = counts.get("input"), counts.get("output", 0)
    reads = [value for name, value in counts.items() if "cache" in name and not _WRITTEN.search(name)]
    parts = sum(value for name, value in counts.items() if name.startswith(("input", "cache")))
    if not parts:
        return {name: value for name, value in counts.items() if value}
    inside = uncached is not None and counts.get("total") == uncached + answer
    outputs = [value for name, value in counts.items() if name.startswith("output")]
    return {
        "prompt_tokens": uncached if inside else parts,
        "completion_tokens": answer if inside else sum(outputs),
        "cached_tokens": sum(reads) if reads else None,
    }


def _is_batch(head: bytes) -> bool:
    return {"custom_id", "response"} <= first_object(head).keys()


def _batch(number: int, row: Any) -> Iterator[Call]:
    answer = at(row, "response/body")
    wrong = wrong_of(row, member(row, "response"), answer)
    if not wrong and not isinstance(answer, dict):
        wrong = "without an answer"
    elif not wrong and answer.get("object") == "list":
        wrong = "an embedding: no request for a generation"
    created = time_ns(member(answer, "created", "created_at"))
    yield Call(created, None, answer, wrong=wrong)


_NO_PROMPTS = "a batch's output has no prompts; its times are those of the answers"
KINDS = (
    log_of_calls("litellm", "LiteLLM's spend logs or standard logging payloads", _is_litellm, _litellm),
    log_of_calls("langfuse", "Langfuse's observations", _is_langfuse, _langfuse, is_traced=True),
    log_of_calls("openai-batch", "output of an OpenAI batch", _is_batch, _batch, _NO_PROMPTS),
)
