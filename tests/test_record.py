"""`kvsim record` before `kvsim serve`: what was sent stands in the trace, and no text stands anywhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest
from kvcache_sim.live.parsing import Completion
from kvcache_sim.live.record.observed import Observed
from kvcache_sim.live.record.trace_file import TraceFile
from kvcache_sim.live.tokenizer import ByteTokenizer
from kvcache_sim.workload.imports.naming import salted_ids
from live_server import LONGEST, live_server

SECRET = "the word that stays private is quixotic"


@contextlib.contextmanager
def recorder(upstream: str, trace: Path, *options: str):
    command = [
        sys.executable,
        "-m",
        "kvcache_sim",
        "record",
        "--upstream",
        upstream,
        "--port",
        "0",
        "-o",
        str(trace),
    ]
    process = subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        url = next(m[1] for line in process.stderr if (m := re.search(r"listening +(http://\S+)/v1", line)))
        yield process, url
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(LONGEST)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LONGEST)
        process.stderr.close()


def chats(url: str) -> list[list[str]]:
    api = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=30)
    answers = []
    for n in range(3):
        said = [{"role": "user", "content": f"{n % 2} {SECRET} " * 20}]
        own = []
        for turn in range(2):
            ask = {"model": "llama-3.1-8b", "messages": said, "max_tokens": 40}
            if (n + turn) % 2:
                own.append(api.chat.completions.create(**ask).choices[0].message.content)
            else:
                stream = api.chat.completions.create(**ask, stream=True)
                own.append("".join(c.choices[0].delta.content or "" for c in stream))
            said = [*said, {"role": "assistant", "content": own[-1]}, {"role": "user", "content": "more"}]
        answers.append(own)
    with pytest.raises(openai.NotFoundError):
        api.completions.create(model="other", prompt="x")
    return answers


def test_a_recorded_trace_is_what_the_server_saw_and_holds_no_text(tmp_path):
    trace, salt = tmp_path / "recorded.jsonl", tmp_path / "salt"
    salt.write_bytes(b"mine")
    with live_server(tmp_path / "live", "-c", "preset:cpu-offload", "--speed", "20") as server:
        with recorder(server.url, trace, "--salt-file", str(salt)) as (_, url):
            answers = chats(url)
        run = server.stop()
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    served = [json.loads(line) for line in (run / "arrivals.jsonl").read_text().splitlines()]
    keys = ("input_length", "output_length", "named_length")
    assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in served]
    alike = [
        [row["hash_ids"].index(id) if id in row["hash_ids"] else -1 for id in row["hash_ids"]] for row in rows
    ]
    assert alike == [list(range(len(row["hash_ids"]))) for row in served]
    first = {}
    numbered = [[first.setdefault(id, len(first)) for id in row["hash_ids"]] for row in rows]
    assert numbered == [row["hash_ids"] for row in served]
    assert all(row["ttft_ms"] >= 0 and len(row["token_ms"]) <= 40 for row in rows if "token_ms" in row)
    command = [sys.executable, "-m", "kvcache_sim", "simulate", str(trace), "--set", "trace.block_size=16"]
    subprocess.run(
        [*command, "-o", str(tmp_path / "again"), "-q"], check=True, timeout=LONGEST, capture_output=True
    )
    texts = [SECRET, "quixotic", *(answer[:20] for own in answers for answer in own)]
    for index in tmp_path.rglob("*"):
        if index.is_file():
            data = index.read_bytes()
            assert not [text for text in texts if text.encode() in data], index


def test_kept_texts_import_as_what_was_recorded(tmp_path):
    trace, texts, again = (tmp_path / name for name in ("recorded.jsonl", "texts.jsonl", "again.jsonl"))
    options = ("-c", "preset:one-gpu", "--speed", "20")
    with (
        live_server(tmp_path / "live", *options) as server,
        recorder(server.url, trace, "--keep-text", str(texts)) as (_, url),
    ):
        chats(url)
    assert SECRET in texts.read_text()
    command = [sys.executable, "-m", "kvcache_sim", "trace", "import", str(texts), "-o", str(again)]
    done = subprocess.run(
        [*command, "--bytes-per-token", "1"], check=True, timeout=LONGEST, capture_output=True, text=True
    )
    assert "1 left out: answered with an error" in done.stderr
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in (trace, again)]
    for own in rows:
        first: dict[int, int] = {}
        start = own[0]["timestamp"]
        for row in own:
            row["hash_ids"] = [first.setdefault(id, len(first)) for id in row["hash_ids"]]
            row["timestamp"] -= start
            row.pop("token_ms", None)
            row["ttft_ms"] = round(row["ttft_ms"], 2) if "ttft_ms" in row else None
    for one, other in zip(*rows, strict=True):
        assert one.pop("timestamp") == pytest.approx(other.pop("timestamp"), abs=0.01)
        assert one.pop("ttft_ms") == pytest.approx(other.pop("ttft_ms"), abs=0.02)
        assert one == other


def test_a_stream_of_two_choices_names_the_tokens_of_the_first_alone():
    observed = Observed(Completion, 0, bytearray(b'{"prompt": "ab"}'))
    for at, index in ((1, 0), (2, 1), (3, 1), (4, 0)):
        chunk = {"choices": [{"index": index, "text": f"{index}"}]}
        observed.answered(b"data: " + json.dumps(chunk).encode() + b"\n\n", at)
    assert observed.tokens(ByteTokenizer()) == (list(b"ab"), list(b"00"))
    assert observed.tokens_ns == [1, 2, 3, 4]


def test_rows_stand_in_order_of_arrival_though_requests_end_in_another(tmp_path):
    trace = TraceFile(tmp_path / "t.jsonl", ByteTokenizer(), 16, b"salt", force=False)
    for arrival_ns in (3_000_000, 1_000_000, 2_000_000):
        body = bytearray(b'{"prompt": "%d"}' % arrival_ns)
        trace.add(Observed(Completion, arrival_ns, body, status=200, said=["x"]), start_ns=0)
    assert trace.close() == 3
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == [1, 2, 3]


def test_only_what_was_answered_is_a_row_and_its_ids_end_with_the_tokens_that_are_known(tmp_path):
    """The engine counts five tokens where this tokenizer has eight: of the answer nothing is known."""
    trace = TraceFile(tmp_path / "t.jsonl", ByteTokenizer(), 4, b"salt", force=False)
    for status in (199, 200, 299, 300, 404):
        usage = {"prompt_tokens": 5, "completion_tokens": 9}
        body = bytearray(b'{"prompt": "abcdefgh"}')
        trace.add(Observed(Completion, 0, body, status=status, usage=usage, said=["answer"]), start_ns=0)
    assert (trace.close(), trace.skipped) == (2, 3)
    row = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    assert row["hash_ids"] == list(salted_ids(ByteTokenizer().encode("abcde"), 4, b"salt"))
    assert (row["input_length"], row["output_length"], "named_length" in row) == (5, 9, False)


def test_of_a_whole_answer_the_first_choice_is_its_text():
    observed = Observed(Completion, 0)
    observed.answered(b'{"choices": [{"text": "a"}, {"text": "b"}]}', 1)
    observed.ended()
    assert observed.said == ["a"]


def test_ids_reveal_nothing_without_the_salt():
    tokens = list(range(64))
    assert salted_ids(tokens, 16, b"a") == salted_ids(tokens, 16, b"a")
    assert not set(salted_ids(tokens, 16, b"a")) & set(salted_ids(tokens, 16, b"b"))
    assert salted_ids(tokens, 16, b"a")[:2] == salted_ids(tokens[:40], 16, b"a")
    assert salted_ids([5, *tokens[1:]], 16, b"a")[3] != salted_ids(tokens, 16, b"a")[3]


def test_a_crash_leaves_what_had_ended_a_second_before(tmp_path):
    trace = tmp_path / "recorded.jsonl"
    options = ("-c", "preset:one-gpu", "--speed", "20")
    with live_server(tmp_path / "live", *options) as server, recorder(server.url, trace) as (process, url):
        chats(url)
        time.sleep(1.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(LONGEST)
    part = tmp_path / "recorded.jsonl.part"
    assert len([json.loads(line) for line in part.read_text().splitlines()]) == 6


def test_a_dead_upstream_closes_the_connection(tmp_path):
    with recorder("http://127.0.0.1:9", tmp_path / "t.jsonl") as (_, url):
        api = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=10)
        with pytest.raises(openai.APIConnectionError):
            api.models.list()
