"""Spans of OpenTelemetry with the ``gen_ai`` attributes, as OTLP in JSON: whole, or an export a line.

Sources: open-telemetry/semantic-conventions, gen-ai-spans, and its ``gen_ai.input.messages`` schema; vLLM's
own spans ``llm_request``; older names are those of OpenLLMetry, OpenInference, strands and Sentry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.calls import Call, calls_of, clock_ns, of_text, requests_of
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.source import list_of, member, problem
from kvcache_sim.workload.readers.format import first_object

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_GENERATIONS = ("chat", "text_completion", "generate_content", "completion")
_OTHERS = ("invoke_agent", "create_agent", "execute_tool", "embeddings", "invoke_workflow", "retrieval")
_COUNTS = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.input_tokens.cached",
        "gen_ai.usage.cached_tokens",
        "gen_ai.usage.input_cached_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "cache_creation_input_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_input_tokens",
        "gen_ai.usage.input_tokens.cache_write",
        "llm.token_count.prompt_details.cache_write",
    ),
}
#: Attributes with the seconds from a request to its first token.
_FIRST_S = (
    "gen_ai.latency.time_to_first_token",
    "gen_ai.server.time_to_first_token",
    "gen_ai.response.time_to_first_chunk",
)
_MESSAGE = re.compile(
    r"(gen_ai\.prompt|gen_ai\.completion|llm\.(?:in|out)put_messages)\.(\d+)\.(?:message\.)?(role|content)"
)
_ERROR_STATUS = (2, "2", "STATUS_CODE_ERROR")


def _detect(head: bytes) -> bool:
    return not first_object(head).keys().isdisjoint(("resourceSpans", "resource_spans"))


class _Span(NamedTuple):
    """A span's id and its parent's, within their trace."""

    span_id: tuple[str, str]
    parent: tuple[str, str]


def _read(source: TraceSource, reading: Reading) -> Requests:
    """Yield the calls; one above another's is an agent's or a framework's span that repeats its counts."""
    spans: list[_Span] = []

    def calls(number: int, value: Any) -> Iterator[Call]:
        for span in _spans(number, value):
            ids = [str(member(span, name) or "") for name in ("traceId", "spanId", "parentSpanId")]
            yield _call(number, span)
            spans.append(_Span((ids[0], ids[1]), (ids[0], ids[2])))

    found = list(calls_of(source, reading, calls))
    parents = dict(spans)
    above: set[tuple[str, str]] = set()
    for span, (_, call) in zip(spans, found, strict=True):
        parent = span.parent
        while not call.wrong and parent in parents and parent not in above:
            above.add(parent)
            parent = parents[parent]
    repeats = "a span above other calls, whose counts it repeats"
    return requests_of(
        (
            (number, call._replace(wrong=repeats) if span.span_id in above and not call.wrong else call)
            for span, (number, call) in zip(spans, found, strict=True)
        ),
        reading,
    )


def _spans(number: int, value: Any) -> Iterator[dict[str, Any]]:
    """Yield the spans of an export; exports of logs and metrics have none."""
    resources = member(value, "resourceSpans", "resource_spans")
    if resources is None and isinstance(value, dict) and not value.keys().isdisjoint(_OTHER_EXPORTS):
        return
    for resource in _listed(number, resources, "resourceSpans"):
        scopes = member(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")
        for scope in _listed(number, scopes or [], "scopeSpans"):
            yield from _listed(number, member(scope, "spans") or [], "spans")


_OTHER_EXPORTS = ("resourceLogs", "resourceMetrics")


def _listed(number: int, value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise problem(number, f"{name} is no list of objects", value, "OTLP in JSON")
    return value


def _call(number: int, span: dict[str, Any]) -> Call:
    events = [list_of(member(event, "attributes")) for event in list_of(span.get("events"))]
    given = [one for each in (*events, list_of(span.get("attributes"))) for one in each]
    said = {str(member(one, "key")): _value(member(one, "value")) for one in given}
    begins = clock_ns(number, member(span, "startTimeUnixNano", "start_time_unix_nano"), 1)
    wait_s = next((said[name] for name in _FIRST_S if isinstance(said.get(name), int | float)), None)
    first = None if begins is None or wait_s is None else begins + round(wait_s * NS_PER_S)
    counts = {name: member(said, *theirs) for name, theirs in _COUNTS.items()}
    answer = _answer(said)
    return Call(
        begins,
        _body(said),
        answer,
        (counts,),
        member(said, "gen_ai.conversation.id", "session.id"),
        first,
        _wrong(span, said),
        member(said, "gen_ai.request.max_tokens"),
    )


def _wrong(span: dict[str, Any], said: dict[str, Any]) -> str:
    operation = member(said, "gen_ai.operation.name")
    if operation is None and member(said, *_COUNTS["prompt_tokens"]) is None:
        return "a span that is no call of a model"
    if operation is not None and operation not in _GENERATIONS:
        return f"a span of another operation: {operation if operation in _OTHERS else 'no generation'}"
    if member(span.get("status"), "code") in _ERROR_STATUS or "error.type" in said:
        return "answered with an error"
    return ""


def _value(value: Any) -> Any:
    """Return the value of an attribute; OTLP writes integers as text."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name == "intValue" and isinstance(inner, str) and inner.lstrip("-").isdecimal():
            return int(inner)
        if name == "arrayValue":
            return [_value(one) for one in list_of(member(inner, "values"))]
        if name == "kvlistValue":
            return {
                str(member(one, "key")): _value(member(one, "value"))
                for one in list_of(member(inner, "values"))
            }
        return inner
    return None


def _body(said: dict[str, Any]) -> dict[str, Any] | None:
    """Return the messages of a span as a body of OpenAI's API; None if it has none (they are opt-in)."""
    inputs = of_text(member(said, "gen_ai.input.messages"))
    if not isinstance(inputs, list):
        inputs = _indexed(said, "gen_ai.prompt", "llm.input_messages")
    system = of_text(member(said, "gen_ai.system_instructions"))
    if isinstance(system, list | str):
        inputs = [{"role": "system", "parts": system}, *inputs]
    messages = [message for one in inputs for message in _messages(one)]
    tools = of_text(member(said, "gen_ai.tool.definitions"))
    return {"messages": messages, "tools": tools if isinstance(tools, list) else []} if messages else None


def _answer(said: dict[str, Any]) -> dict[str, Any] | None:
    outputs = of_text(member(said, "gen_ai.output.messages"))
    if not isinstance(outputs, list):
        outputs = _indexed(said, "gen_ai.completion", "llm.output_messages")
    messages = [message for one in outputs[:1] for message in _messages(one)]
    return {"choices": [{"message": messages[0]}]} if messages else None


def _indexed(said: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """Return messages of the older attributes ``gen_ai.prompt.0.role`` and the like."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in said.items():
        if (match := _MESSAGE.fullmatch(name)) and match[1] in names:
            found.setdefault(int(match[2]), {"role": "user"})[match[3]] = value
    return [found[number] for number in sorted(found)]


def _messages(given: Any) -> list[dict[str, Any]]:
    """Return a message of parts as messages of OpenAI's API: each result of a tool is one of its own."""
    parts = member(given, "parts", "content") if isinstance(given, dict) else given
    message: dict[str, Any] = {"role": str(member(given, "role") or "user")}
    results, texts, calls = [], [], []
    for part in parts if isinstance(parts, list) else [{"type": "text", "content": parts}]:
        kind, content = member(part, "type"), member(part, "content", "text", "response", "result")
        if kind == "tool_call":
            function = {"name": member(part, "name"), "arguments": _text(member(part, "arguments"))}
            calls.append({"id": member(part, "id"), "type": "function", "function": function})
        elif kind == "tool_call_response":
            results.append({"role": "tool", "tool_call_id": member(part, "id"), "content": _text(content)})
        elif kind == "reasoning":
            message["reasoning_content"] = content
        elif content is not None:
            texts.append({"type": "text", "text": content} if isinstance(content, str) else part)
    if texts:
        message["content"] = texts
    if calls:
        message["tool_calls"] = calls
    return results if results and not (texts or calls) else [*results, message]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


KIND = LogKind("otel", "OpenTelemetry's gen_ai spans as OTLP in JSON, vLLM's llm_request too", _detect, _read)
