"""Spans of OpenTelemetry with the ``gen_ai`` attributes, as OTLP in JSON: whole, or an export a line.

Sources: open-telemetry/semantic-conventions, gen-ai-spans, and its ``gen_ai.input.messages`` schema; vLLM's
own spans ``llm_request``; older names are those of OpenLLMetry, OpenInference, strands and Sentry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.calls import Call, clock_ns, log_of_calls, of_text
from kvcache_sim.workload.imports.source import amount_of, list_of, objects_of
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.readers.format import first_object

_GENERATIONS = ("chat", "text_completion", "generate_content", "completion")
_OTHERS = ("invoke_agent", "create_agent", "execute_tool", "embeddings", "invoke_workflow", "retrieval")
#: Our names of counts, and the attributes behind ``gen_ai.usage.`` or ``llm.token_count.`` that have them.
_COUNTS = {
    "prompt_tokens": ("input_tokens", "prompt_tokens", "prompt"),
    "completion_tokens": ("output_tokens", "completion_tokens", "completion"),
    "cached_tokens": (
        "cache_read.input_tokens", "cache_read_input_tokens", "input_tokens.cached", "cached_tokens",
        "input_cached_tokens", "prompt_details.cache_read",
    ),
    "cache_creation_input_tokens": (
        "cache_creation.input_tokens", "cache_creation_input_tokens", "cache_write_input_tokens",
        "input_tokens.cache_write", "prompt_details.cache_write",
    ),
}  # fmt: skip
#: Attributes with the seconds from a request to its first token.
_FIRST_S = (
    "gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token",
    "gen_ai.response.time_to_first_chunk",
)  # fmt: skip
_MESSAGE = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(role|content)")
_EXPORTS, _OTHER_EXPORTS = ("resourceSpans", "resource_spans"), ("resourceLogs", "resourceMetrics")
_SPANS = re.compile(rb'"resource_?[sS]pans"')


def _detect(head: bytes) -> bool:
    return (
        not first_object(head).keys().isdisjoint((*_EXPORTS, *_OTHER_EXPORTS))
        and _SPANS.search(head) is not None
    )


def _calls(number: int, value: Any) -> Iterator[Call]:
    """Yield a call a span; exports of logs and metrics have none."""
    if isinstance(value, dict) and not value.keys().isdisjoint(_OTHER_EXPORTS):
        return
    for resource in objects_of(number, value, *_EXPORTS):
        for scope in objects_of(number, resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            yield from (_call(number, span) for span in objects_of(number, scope, "spans"))


def _call(number: int, span: dict[str, Any]) -> Call:
    given = [list_of(member(event, "attributes")) for event in list_of(span.get("events"))]
    given.append(list_of(span.get("attributes")))
    said = {str(member(one, "key")): _value(member(one, "value")) for each in given for one in each}
    begins = clock_ns(number, member(span, "startTimeUnixNano", "start_time_unix_nano"), 1)
    wait_s = next((wait for name in _FIRST_S if (wait := amount_of(said.get(name))) is not None), None)
    usage = {re.sub(r"^(gen_ai\.usage|llm\.token_count)\.", "", name): said[name] for name in said}
    counts = {name: member(usage, *theirs) for name, theirs in _COUNTS.items()}
    tools = of_text(said.get("gen_ai.tool.definitions"))
    messages = _messages(said, "input", "prompt")
    answers = _messages(said, "output", "completion")
    system = of_text(said.get("gen_ai.system_instructions"))
    messages = [{"role": "system", "content": system}, *messages] if system else messages
    trace, span_id = member(span, "traceId", "trace_id"), member(span, "spanId", "span_id")
    return Call(
        begins,
        {"messages": messages, "tools": list_of(tools)} if messages else None,
        {"choices": [{"message": answers[0]}]} if answers else None,
        (counts,),
        member(said, "gen_ai.conversation.id", "session.id"),
        None if begins is None or wait_s is None else begins + round(wait_s * NS_PER_S),
        _wrong(span, said, counts),
        member(said, "gen_ai.request.max_tokens"),
        f"{trace} {span_id}" if span_id else "",
        f"{trace} {member(span, 'parentSpanId', 'parent_span_id')}",
    )


def _wrong(span: dict[str, Any], said: dict[str, Any], counts: dict[str, Any]) -> str:
    operation = member(said, "gen_ai.operation.name")
    if operation is None and counts["prompt_tokens"] is None:
        return "a span that is no call of a model"
    if operation is not None and operation not in _GENERATIONS:
        return f"a span of another operation: {operation if operation in _OTHERS else 'no generation'}"
    failed = member(span.get("status"), "code") in (2, "2", "STATUS_CODE_ERROR") or "error.type" in said
    return "answered with an error" if failed else ""


def _value(value: Any) -> Any:
    """Return the value of an attribute; OTLP writes integers as text."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name == "intValue" and isinstance(inner, str) and inner.lstrip("-").isdecimal():
            return int(inner)
        values = list_of(member(inner, "values"))
        if name == "kvlistValue":
            return {str(member(one, "key")): _value(member(one, "value")) for one in values}
        return [_value(one) for one in values] if name == "arrayValue" else inner
    return None


def _messages(said: dict[str, Any], new: str, old: str) -> list[dict[str, Any]]:
    """Return messages (they are opt-in) with their parts as content; older attributes have one each."""
    given = list_of(of_text(said.get(f"gen_ai.{new}.messages")))
    found = {
        at: {"role": str(member(one, "role") or "user"), "content": member(one, "parts", "content")}
        for at, one in enumerate(given)
    }
    for name, value in said.items() if not given else ():
        if (match := _MESSAGE.fullmatch(name)) and match[1] == old:
            found.setdefault(int(match[2]), {"role": "user"})[match[3]] = value
    return [found[at] for at in sorted(found)]


KIND = log_of_calls(
    "otel",
    "OpenTelemetry's gen_ai spans as OTLP in JSON, vLLM's llm_request too",
    _detect,
    _calls,
    is_traced=True,
)
