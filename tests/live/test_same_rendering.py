"""The same chats through `serve`, `record` and `trace import`: the same tokens, blocks and hits."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from kvcache_sim.extras.live.record.observed import PATHS, Observed
from kvcache_sim.extras.live.record.texts import Texts
from kvcache_sim.extras.live.record.trace_file import TraceFile
from kvcache_sim.extras.live.tokenizer import ByteTokenizer
from kvcache_sim.workload.prompts.body import Seen
from live_server import LONGEST, live_server
from recorders import numbered, recorder
from support.chatml import chatml

SYSTEM = {"role": "system", "content": "You answer in few words. " * 4}
ASKED = {"role": "user", "content": "How many blocks has the cache, and how large are they? " * 2}
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"size": n, "kind": "x" * 40}}}
    for n in range(10)
]
CALL = {"id": "c", "type": "function", "function": {"name": "tool_1", "arguments": '{"size": 3}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "Sixteen tokens a block. " * 3}
A, B = ({"type": "image_url", "image_url": {"url": url}} for url in "ab")
WHAT = {"type": "text", "text": "What?"}
CHATS = [
    {"messages": [SYSTEM, ASKED]},
    {"messages": [SYSTEM, ASKED], "tools": TOOLS},
    {"messages": [SYSTEM, ASKED], "tools": TOOLS[::-1]},
    {"messages": [SYSTEM, ASKED, CALLED, RESULT], "tools": TOOLS},
    {"messages": [SYSTEM, ASKED, CALLED, RESULT, ASKED], "tools": TOOLS[::-1]},
    {"messages": [SYSTEM, ASKED]},
    *({"messages": [{"role": "user", "content": parts}]} for parts in ([A, WHAT], [B, WHAT], [A])),
]


def text_of(chat: dict) -> str:
    """Return the rendered prompt of a chat without images."""
    tools = "".join(json.dumps(tool) + "\n" for tool in chat.get("tools", ()))
    call = '<tool_call>\n{"name": "tool_1", "arguments": {"size": 3}}\n</tool_call>\n'
    said = [(own["role"], own["content"] or call) for own in chat["messages"]]
    return chatml(*([("tools", tools)] if tools else []), *said)


def ask(url: str, chat: dict) -> int:
    """Return the cached tokens of a chat's prompt."""
    body = json.dumps({"model": "llama-3.1-8b", "max_tokens": 2, **chat}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=LONGEST) as answer:
        return json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]


def import_texts(texts: Path, trace: Path) -> None:
    command = ["trace", "import", texts, "-o", trace, "--bytes-per-token", "1"]
    run = [sys.executable, "-m", "kvcache_sim", *command]
    subprocess.run(run, check=True, timeout=LONGEST, capture_output=True)


def shared_blocks(one: str, other: str) -> int:
    equal = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return min(equal, len(one) - 1) // 16  # the last token of a prompt is always computed


def test_tools_calls_results_and_images_are_part_of_the_prompt_in_all_three(tmp_path):
    """Bytes are the tokens: a chat hits the longest beginning that a chat before it had, and no other tools."""
    trace, texts = tmp_path / "recorded.jsonl", tmp_path / "texts.jsonl"
    options = ("-c", "preset:cpu-offload", "--speed", "20", "--cached-usage")
    with live_server(tmp_path / "live", *options) as server:
        with recorder(server.url, trace, "--keep-text", str(texts)) as (_, url):
            cached = [ask(url, chat) for chat in CHATS]
        run = server.stop()
    prompts = [text_of(chat) for chat in CHATS[:6]]
    hits = [max((shared_blocks(own, one) for one in prompts[:n]), default=0) for n, own in enumerate(prompts)]
    assert cached[:6] == [16 * blocks for blocks in hits]
    assert cached[6:] == [0, 16, 768]  # the marker of a message alone is shared with another image
    imported = tmp_path / "imported.jsonl"
    import_texts(texts, imported)
    served, recorded, again = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (run / "arrivals.jsonl", trace, imported)
    )
    assert [row["input_length"] for row in served[:6]] == [len(prompt) for prompt in prompts]
    assert [row["cached_tokens"] for row in recorded] == cached
    for rows in (recorded, again):
        assert [row["input_length"] for row in rows] == [row["input_length"] for row in served]
        assert numbered(rows) == [row["hash_ids"] for row in served]


USAGE = {"input_tokens": 4, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 6}
FUNCTION = {"type": "function_call", "name": "f", "arguments": '{"a": 1}'}
RESPONSE = {
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}, FUNCTION],
    "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 90}, "output_tokens": 7},
}
CHAT_USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 90}}


def called(**function: str) -> dict:
    return {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": function}]}}]}


#: Path and body of a request, and the events of its answer, and how many of them have tokens.
STREAMS = {
    "anthropic": (
        "/v1/messages",
        {"system": "s", "messages": [{"role": "user", "content": "u"}]},
        [
            {"type": "message_start", "message": {"usage": {**USAGE, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "H"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "i"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "f"}},
            {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"a":'}},
            {"type": "content_block_delta", "index": 1, "delta": {"partial_json": " 1}"}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
        ],
        5,
    ),
    "responses": (
        "/v1/responses",
        {"instructions": "s", "input": "u"},
        [
            {"type": "response.created", "response": {"usage": None}},
            {"type": "response.output_text.delta", "delta": "Hi"},
            {"type": "response.function_call_arguments.delta", "delta": '{"a": 1}'},
            {"type": "response.completed", "response": RESPONSE},
        ],
        2,
    ),
    "openai": (
        "/v1/chat/completions",
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
        [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"index": 0, "delta": {"content": "H"}}]},
            {"choices": [{"index": 0, "delta": {"content": "i"}}]},
            called(name="f", arguments=""),
            called(arguments='{"a": 1}'),
            {"choices": [], "usage": CHAT_USAGE},
        ],
        4,
    ),
}


@pytest.mark.parametrize("family", STREAMS)
def test_streams_of_every_api_are_recorded_and_imported_alike(family, tmp_path):
    """One prompt and one answer in three forms: the same tokens, counts and cached tokens."""
    path, body, events, pieces = STREAMS[family]
    observed = Observed(PATHS[path.encode()], 5, bytearray(json.dumps(body).encode()), status=200)
    name = "" if family == "openai" else "event: x\n"
    stream = "".join(f"{name}data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    for at in range(0, len(stream), 50):
        observed.answered(stream[at : at + 50].encode(), 100 + at)
    observed.ended()
    answer = 'Hi<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
    prompt = chatml(("system", "s"), ("user", "u"))
    assert observed.tokens(ByteTokenizer(), Seen()) == (list(prompt.encode()), list(answer.encode()))
    assert len(observed.tokens_ns) == pieces
    trace = TraceFile(tmp_path / "t.jsonl", ByteTokenizer(), 16, b"s", False)
    texts = Texts(tmp_path / "x.jsonl", False)
    trace.add(observed, 0)
    texts.add(observed)
    texts.close()
    assert trace.close() == 1
    again = tmp_path / "again.jsonl"
    import_texts(tmp_path / "x.jsonl", again)
    row, other = (json.loads(own.read_text()) for own in (trace.path, again))
    for name, value in (("input_length", 100), ("output_length", 7), ("cached_tokens", 90)):
        assert row[name] == other[name] == value
    assert len(row["hash_ids"]) == len(other["hash_ids"]) == len(prompt) // 16
