"""The same calls, written as gateways, tracers and load generators log them; a call is a mapping of its figures."""

import gzip
import json

from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Naming, Notes
from kvcache_sim.workload.imports.write import import_logs

START_S = 1_772_442_000


def imported(path, **settings):
    """Return the kind of a log, its rows, and all that is said of it."""
    notes = Notes()
    found = import_logs([str(path)], "", Reading(Naming(16, b"s", None, 4), notes, **settings))
    return found.kind.name, [json.loads(line) for line in found.lines()], "\n".join(notes.lines("log"))


def written(path, value, form="lines"):
    """Write rows, or one document, in a form that the format allows."""
    if form == "gz":
        path.write_bytes(gzip.compress(json.dumps(value).encode()))
    elif form == "lines":
        path.write_text("".join(json.dumps(row) + "\n" for row in value))
    else:
        value = {"data": value, "meta": {"page": 1}} if form == "page" else value
        path.write_text(json.dumps(value, indent=2 if form == "pretty" else None))
    return path


def usage(call):
    cached = (
        {"prompt_tokens_details": {"cached_tokens": call["cached"]}} if call["cached"] is not None else {}
    )
    return {"prompt_tokens": call["inputs"], "completion_tokens": call["outputs"], **cached}


def chat(call):
    return [{"role": "system", "content": "s" * call["shared"]}, {"role": "user", "content": call["text"]}]


def iso(call, after_ms=0):
    ms = call["at_ms"] + after_ms
    return f"2026-03-02T09:{ms // 60_000:02}:{ms // 1000 % 60:02}.{ms % 1000:03}Z"


def answer(call):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a" * call["outputs"]}}]}


def litellm(call):
    body = {"model": "m", "messages": chat(call)}
    row = {
        "call_type": "acompletion",
        "startTime": iso(call),
        "endTime": iso(call, 9000),
        "status": "success",
    }
    row |= {"completionStartTime": iso(call, call["first_ms"]), "session_id": call["session"]}
    row |= {"metadata": {"usage_object": usage(call)}, "response": json.dumps(answer(call)), "messages": {}}
    return row | {"proxy_server_request": json.dumps(body), "cache_hit": "False"}


def langfuse(call):
    cached = call["cached"] or 0
    parts = {"input": call["inputs"] - cached, "output": call["outputs"]}
    parts |= {} if call["cached"] is None else {"input_cached_tokens": cached}
    row = {"traceId": "t", "type": "GENERATION", "startTime": iso(call), "sessionId": call["session"]}
    row |= {"completionStartTime": iso(call, call["first_ms"]), "input": {"messages": chat(call)}}
    return row | {"output": answer(call)["choices"][0]["message"], "usageDetails": parts}


def attribute(name, value):
    kind = {int: "intValue", float: "doubleValue"}.get(type(value), "stringValue")
    return {"key": name, "value": {kind: str(value) if kind == "intValue" else value}}


def span(call, name="chat", own="a", parent="", **more):
    said = {
        "gen_ai.operation.name": name,
        "gen_ai.conversation.id": call["session"],
        "gen_ai.usage.input_tokens": call["inputs"],
        "gen_ai.usage.output_tokens": call["outputs"],
        "gen_ai.usage.cache_read.input_tokens": call["cached"],
        "gen_ai.latency.time_to_first_token": call["first_ms"] / 1000,
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "s" * call["shared"]}]),
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": call["text"]}]}]
        ),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": []}]),
        **more,
    }
    at_ns = (START_S * 1000 + call["at_ms"]) * 10**6
    given = [attribute(name, value) for name, value in said.items() if value is not None]
    return {
        "traceId": "t",
        "spanId": own,
        "parentSpanId": parent,
        "startTimeUnixNano": str(at_ns),
        "attributes": given,
    }


def exported(spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def gateway(call, response=None):
    row = {"timestamp": iso(call), "request": {"messages": chat(call)}, "session_id": call["session"]}
    row |= {"completion_start_time": iso(call, call["first_ms"])}
    whole = {"body": answer(call) | {"usage": usage(call)}, "status_code": 200}
    return row | {"response": response or whole}


def chunks(call):
    return [{"choices": [{"delta": {"content": "a"}}]}] * call["outputs"] + [
        {"choices": [], "usage": usage(call)}
    ]


def events(pieces):
    return [*(f"data: {json.dumps(piece)}" for piece in pieces), "data: [DONE]"]


def anthropic(call):
    """Return the events of a stream whose counts come in two parts; the uncached tokens stand alone."""
    cached = {} if call["cached"] is None else {"cache_read_input_tokens": call["cached"]}
    before = {"input_tokens": call["inputs"] - (call["cached"] or 0), "output_tokens": 1, **cached}
    delta = {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}}
    return [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": before}},
        *[delta] * call["outputs"],
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": call["outputs"]}},
    ]


def gemini(call):
    said = {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}}]}
    counts = {"promptTokenCount": call["inputs"], "candidatesTokenCount": call["outputs"]}
    counts |= {"cachedContentTokenCount": call["cached"]}
    return [*[said] * call["outputs"], {"usageMetadata": counts}]


def responses(call):
    counts = {"input_tokens": call["inputs"], "output_tokens": call["outputs"]}
    counts |= {"input_tokens_details": {"cached_tokens": call["cached"]}}
    output = [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a" * call["outputs"]}],
        }
    ]
    whole = {"status": "completed", "output": output, "usage": counts}
    return [
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.completed", "response": whole},
    ]


STREAMS = {
    "text": lambda call: "\n\n".join(events(chunks(call))) + "\n\n",
    "lines": lambda call: events(chunks(call)),
    "chunks": chunks,
    "anthropic": lambda call: "".join(f"event: x\n{line}\n\n" for line in events(anthropic(call))),
    "gemini": gemini,
    "responses": lambda call: "\n".join(events(responses(call))),
}


def genai_perf(call):
    at_ns = (START_S * 1000 + call["at_ms"]) * 10**6
    return {
        "timestamp": at_ns,
        "request_inputs": {"payload": json.dumps({"messages": chat(call), "stream": True})},
        "response_timestamps": [at_ns + call["first_ms"] * 10**6],
        "response_outputs": [{"response": f"data: {json.dumps(piece)}\n\n"} for piece in chunks(call)]
        + [{"response": "data: [DONE]\n\n"}],
    }


def inference_perf(call):
    at_s = 5000 + call["at_ms"] / 1000
    metrics = {"server_usage": usage(call), "output_token_times": [at_s + call["first_ms"] / 1000]}
    info = {"input_tokens": 1, "response_metrics": metrics}
    request = json.dumps({"messages": chat(call)})
    return {"start_time": at_s, "request": request, "response": "a", "info": info, "error": None}
