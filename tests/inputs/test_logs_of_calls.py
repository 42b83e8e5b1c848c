"""Logs of gateways, tracers and load generators: the same calls make the same rows from every format."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError
from logs_of_calls import (
    START_S,
    STREAMS,
    exported,
    gateway,
    genai_perf,
    imported,
    inference_perf,
    langfuse,
    litellm,
    span,
    usage,
    written,
)
from support.examples import examples

FORMATS = {
    "litellm": (litellm, list, ("lines", "pretty", "page", "gz")),
    "langfuse": (langfuse, list, ("lines", "pretty", "page", "gz")),
    "openai": (gateway, list, ("lines", "pretty", "gz")),
    **{
        f"openai {name}": (lambda call, stream=stream: gateway(call, stream(call)), list, ("lines", "pretty"))
        for name, stream in STREAMS.items()
    },
    "otel": (
        span,
        lambda spans: exported([own | {"spanId": str(at)} for at, own in enumerate(spans)]),
        ("pretty", "gz", "line"),
    ),
    "genai-perf": (
        genai_perf,
        lambda rows: {"service_kind": "openai", "experiments": [{"requests": rows}]},
        ("pretty", "gz"),
    ),
    "inference-perf": (inference_perf, list, ("pretty", "lines", "gz")),
}
CALLS = st.fixed_dictionaries(
    {
        "at_ms": st.integers(0, 3_000_000),
        "shared": st.sampled_from((4, 160)),
        "text": st.text("xyz", min_size=1, max_size=80),
        "inputs": st.integers(60, 90),
        "outputs": st.integers(1, 9),
        "cached": st.none() | st.integers(0, 60),
        "first_ms": st.integers(0, 8000),
        "session": st.sampled_from(("one", "two")),
    }
)


@examples(150)
@given(st.data(), st.sampled_from(sorted(FORMATS)), st.lists(CALLS, min_size=1, max_size=4))
def test_the_same_calls_make_the_same_rows_from_every_format(tmp_path_factory, data, name, calls):
    """Times, counts, measured hits and sessions are the log's; equal beginnings of prompts have equal ids."""
    write, whole, forms = FORMATS[name]
    form = data.draw(st.sampled_from(forms))
    path = written(tmp_path_factory.mktemp("l") / "log", whole([*map(write, calls)]), form)
    kind, rows, _ = imported(path)
    assert kind == name.split()[0]
    calls = sorted(calls, key=lambda call: call["at_ms"])
    assert [round(row["timestamp"]) for row in rows] == [call["at_ms"] - calls[0]["at_ms"] for call in calls]
    assert [(row["input_length"], row["output_length"]) for row in rows] == [
        (call["inputs"], call["outputs"]) for call in calls
    ]
    assert [row.get("cached_tokens") for row in rows] == [call["cached"] for call in calls]
    assert [round(row["ttft_ms"], 2) for row in rows] == [call["first_ms"] for call in calls]
    if "perf" not in name:
        names = {call["session"]: row["session_id"] for call, row in zip(calls, rows, strict=True)}
        assert [row["session_id"] for row in rows] == [names[call["session"]] for call in calls]
    shared = {row["hash_ids"][0] for row, call in zip(rows, calls, strict=True) if call["shared"] == 160}
    assert len(shared) <= 1


CALL = {"at_ms": 0, "shared": 160, "text": "x", "inputs": 60, "outputs": 3, "cached": 16, "first_ms": 7}
CALL |= {"session": "one"}


def batch(body, **more):
    return {"custom_id": "c", "response": {"status_code": 200, "body": body}, "error": None, **more}


COMPLETION = {"object": "chat.completion", "created": START_S, "usage": usage(CALL)}
KEPT = {
    "litellm": litellm(CALL),
    "langfuse": langfuse(CALL) | {"id": "z", "parentObservationId": "up"},
    "otel": exported([span(CALL, own="z")]),
    "openai-batch": batch(COMPLETION),
    "inference-perf": inference_perf(CALL),
    "openai": gateway(CALL),
}
ERROR = "answered with an error"


@pytest.mark.parametrize(
    ("kind", "row", "reason"),
    [
        ("litellm", litellm(CALL) | {"status": "failure"}, ERROR),
        ("litellm", litellm(CALL) | {"metadata": {"status": "failure"}}, ERROR),
        ("litellm", litellm(CALL) | {"cache_hit": "True"}, "answered by LiteLLM's own cache"),
        ("litellm", litellm(CALL) | {"call_type": "aembedding"}, "an embedding"),
        ("langfuse", langfuse(CALL) | {"type": "SPAN"}, "an observation that is no call of a model: SPAN"),
        ("langfuse", langfuse(CALL) | {"level": "ERROR"}, ERROR),
        ("langfuse", langfuse(CALL) | {"id": "up"}, "a span above other calls, whose counts it repeats"),
        ("otel", exported([span(CALL, "invoke_agent")]), "a span of another operation: invoke_agent"),
        ("otel", exported([span(CALL, "execute_tool")]), "a span of another operation: execute_tool"),
        ("otel", exported([span(CALL, "embeddings")]), "a span of another operation: embeddings"),
        ("otel", exported([span(CALL) | {"status": {"code": 2}}]), ERROR),
        ("otel", exported([span(CALL, own="z")]), "a span that the log has already"),
        ("otel", exported([span(CALL) | {"attributes": []}]), "a span that is no call of a model"),
        ("openai-batch", batch({}, response=None, error={"code": "batch_expired"}), ERROR),
        ("openai-batch", batch({}, response={"status_code": 500, "body": {}}), ERROR),
        ("openai-batch", batch({"object": "list", "created": 1}), "an embedding"),
        ("inference-perf", inference_perf(CALL) | {"error": {"error_type": "x"}}, ERROR),
        ("openai", gateway(CALL) | {"status": "cancelled"}, "cancelled"),
        ("openai", gateway(CALL) | {"request": {"input": "x"}}, "neither messages nor a prompt"),
    ],
)
def test_what_is_no_request_is_left_out_and_counted(tmp_path, kind, row, reason):
    other = json.loads(json.dumps(KEPT[kind]).replace('"z"', '"y"'))
    name, rows, said = imported(written(tmp_path / "log", [KEPT[kind], row, other]))
    assert (name, len(rows)) == (kind, 2)
    assert f"log:2: 1 left out: {reason}" in said


ANSWER = json.dumps({"choices": [{"text": "a"}], "usage": usage(CALL)})
#: Members of a call's row that have its counts, and the tokens of its prompt and those that were cached.
COUNTS = """
LiteLLM's count of a Claude leaves out what was read and written: parts that exceed it add up
  litellm {"metadata": {"usage_object": {"prompt_tokens": 31, "completion_tokens": 4,
    "cache_creation_input_tokens": 60, "cache_read_input_tokens": 9}}} → 100, 9
  litellm {"metadata": {}, "response": {"usage": {"prompt_tokens": 80, "completion_tokens": 4}}} → 80, null
  litellm {"metadata": null, "response": {}, "prompt_tokens": 70, "completion_tokens": 4} → 70, null
usageDetails are disjoint, unless input and output alone make the total
  langfuse {"usageDetails": {"input": 30, "input_cached_tokens": 40, "output": 4, "total": 74}} → 70, 40
  langfuse {"usageDetails": {"input": 70, "input_cached_tokens": 40, "output": 4, "total": 74}} → 70, 40
  langfuse {"usageDetails": {"input": 5, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 9,
    "output": 4}} → 54, 40
a later row of counts has what an earlier one does not say
  inference-perf {"info": {"input_tokens": 70, "output_tokens": 4}, "response": ANSWER} → 70, 16
a text that is JSON without a prompt is none
  litellm {"messages": [{"role": "user", "content": "x"}], "proxy_server_request": "{}",
    "metadata": {"usage_object": {"prompt_tokens": 1, "completion_tokens": 4}}} → 1, null
  langfuse {"usageDetails": null, "usage": {"input": 70, "output": 4, "total": 74}} → 70, null
  langfuse {"usageDetails": null, "promptTokens": 70, "completionTokens": 4} → 70, null
""".replace("ANSWER", json.dumps(ANSWER))


@pytest.mark.parametrize("line", re.findall(r"^  (\S.*)", COUNTS.replace("\n    ", " "), re.M))
def test_counts_mean_what_the_format_says(tmp_path, line):
    kind, _, text = line.partition(" ")
    members, _, tokens = text.partition(" → ")
    inputs, cached = json.loads(f"[{tokens}]")
    _, rows, _ = imported(written(tmp_path / "log", [KEPT[kind] | json.loads(members)]))
    assert (rows[0]["input_length"], rows[0]["output_length"]) == (inputs, 4)
    assert rows[0].get("cached_tokens") == cached


@pytest.mark.parametrize(
    "name", ["cache_read_input_tokens", "input_tokens.cached", "cached_tokens", "input_cached_tokens"]
)
def test_names_of_cached_tokens_in_the_wild(tmp_path, name):
    old = {f"gen_ai.usage.{name}": 32, "gen_ai.usage.cache_read.input_tokens": None}
    _, rows, _ = imported(written(tmp_path / "log", [exported([span(CALL, **old)])]))
    assert rows[0]["cached_tokens"] == 32


def test_a_wait_that_is_no_time_is_not_kept(tmp_path):
    wait = {"gen_ai.latency.time_to_first_token": 10**400}
    _, rows, _ = imported(written(tmp_path / "log", [exported([span(CALL, **wait)])]))
    assert "ttft_ms" not in rows[0]


def test_a_span_above_other_calls_repeats_their_counts(tmp_path):
    """Whatever stands between them, in whichever line."""
    between = span(CALL, "execute_tool", own="b", parent="a")
    lines = [exported([span(CALL, own="c", parent="b")]), exported([span(CALL, own="a"), between])]
    lines.append({"resourceLogs": []})
    _, rows, said = imported(written(tmp_path / "log", lines))
    assert len(rows) == 1
    assert "log:2: 1 left out: a span above other calls, whose counts it repeats" in said


def test_older_spans_have_a_message_an_attribute(tmp_path):
    none = dict.fromkeys(("gen_ai.input.messages", "gen_ai.operation.name", "gen_ai.system_instructions"))
    old = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "x" * 200}
    _, rows, _ = imported(written(tmp_path / "log", [exported([span(CALL, **none, **old)])]))
    assert len(rows[0]["hash_ids"]) == 3
    parts = [{"type": "tool_call", "name": "f", "arguments": {"k": 1}}, {"type": "reasoning", "content": "r"}]
    results = [{"type": "tool_call_response", "id": "1", "response": {"ok": True}}]
    said = [{"role": "assistant", "parts": parts}, {"role": "tool", "parts": results}]
    tools = json.dumps([{"type": "function", "name": "f"}])
    new = {"gen_ai.input.messages": json.dumps(said), "gen_ai.tool.definitions": tools}
    _, rows, _ = imported(written(tmp_path / "log", [exported([span(CALL, **new)])]))
    kinds = [kind for kind, _ in rows[0]["segments"]]
    assert sorted(kinds) == ["system", "thinking", "tool_call", "tool_result", "tools"]


@pytest.mark.parametrize("text", ["redacted-by-litellm", "x (litellm_truncated skipped 9 chars) y"])
def test_texts_that_were_not_kept_name_no_blocks(tmp_path, text):
    body = {"messages": [{"role": "user", "content": text * 9}]}
    rows = [litellm(CALL), litellm(CALL) | {"proxy_server_request": body}]
    _, rows, said = imported(written(tmp_path / "log", rows))
    assert ["hash_ids" in row for row in rows] == [True, False]
    assert "1 of 2 requests have no texts in the log, so no block ids" in said


# -- chains of responses


def response(name, before, text, said, **more):
    body = {"model": "m", "instructions": "i" * 64, "input": [{"role": "user", "content": text}], **more}
    body |= {"previous_response_id": before} if before else {}
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}
    return {"timestamp": START_S, "request": body, "response": {"id": name, "output": [item]}}


def test_a_response_continues_the_one_that_it_names(tmp_path):
    """As if its input had the whole history; instructions are each request's own."""
    first, later = response("r1", "", "a" * 90, "b" * 70), response("r2", "r1", "c" * 50, "d")
    whole = response("r2", "", "c" * 50, "d")
    whole["request"]["input"] = [
        *first["request"]["input"],
        *first["response"]["output"],
        *later["request"]["input"],
    ]
    _, chained, said = imported(written(tmp_path / "1", [first, later]))
    _, resent, _ = imported(written(tmp_path / "2", [first, whole]))
    assert [row["hash_ids"] for row in chained] == [row["hash_ids"] for row in resent]
    assert chained[0]["hash_ids"] == chained[1]["hash_ids"][: len(chained[0]["hash_ids"])]
    assert chained[0]["session_id"] == chained[1]["session_id"] != resent[1]["session_id"]
    assert "continue" not in said
    asked = (("r1", "a" * 90, "b" * 70), ("r2", "c" * 50, "d"))
    in_turn = [response(name, "", *texts, conversation={"id": "k"}) for name, *texts in asked]
    _, rows, _ = imported(written(tmp_path / "3", in_turn))
    assert [row["hash_ids"] for row in rows] == [row["hash_ids"] for row in resent]


def test_a_response_whose_history_is_not_in_the_log_names_no_blocks(tmp_path):
    later = response("r2", "r1", "c" * 50, "d")
    later["response"]["usage"] = {"input_tokens": 500, "output_tokens": 1}
    kept = [response("r3", "", "a" * 90, "b", store=False), response("r4", "r3", "e", "f"), later]
    _, rows, said = imported(written(tmp_path / "log", kept))
    assert [row["input_length"] for row in rows if "hash_ids" not in row] == [500]
    assert "1 requests without block ids continue an answer that the log does not have" in said
    assert "1 left out: neither texts nor counts of tokens" in said


# -- what is wrong


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (litellm(CALL) | {"startTime": "soon"}, ":1: no time"),
        (langfuse(CALL) | {"startTime": None}, ":1: no time"),
        (batch({"usage": usage(CALL)}), ":1: no time"),
        (litellm(CALL) | {"proxy_server_request": {"messages": [1]}}, ":1: not a message"),
        (langfuse(CALL) | {"usageDetails": {"input": -1}}, ":1: input is no count"),
        (exported([span(CALL) | {"startTimeUnixNano": "-1"}]), ":1: not a time"),
        (gateway(CALL, [{"choices": 5}]), ":1: not the chunks of an answer"),
        ({"resourceSpans": {}}, ":1: resourceSpans is no list of objects"),
        ({"experiments": 1}, ":1: experiments is no list"),
        (inference_perf(CALL) | {"start_time": "x"}, ":1: not a time"),
    ],
)
def test_a_wrong_row_is_one_line(tmp_path, row, what):
    path = written(tmp_path / "log", [row])
    with pytest.raises(TraceError) as raised:
        imported(path)
    assert what in str(raised.value)
    assert "\n" not in str(raised.value)
    path.write_text(json.dumps([row, row], indent=1)[:-30])
    with pytest.raises(TraceError):
        imported(path)
