"""`kvsim record` before `kvsim serve`: what was sent stands in the trace, and no text stands anywhere."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import OutputExistsError, UsageError
from kvcache_sim.extras.live.parsing import Chat, Completion
from kvcache_sim.extras.live.record.observed import Observed
from kvcache_sim.extras.live.record.proxy import Upstream, _Answers, _Requests
from kvcache_sim.extras.live.record.trace_file import TraceFile
from kvcache_sim.extras.live.tokenizer import ByteTokenizer
from kvcache_sim.workload.chat_template import chat_prompt
from kvcache_sim.workload.imports.naming import salted_ids
from live_server import LONGEST, live_server
from support.examples import examples

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


texts = st.text("aé", max_size=3)
usages = st.none() | st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(0, 9)},
    optional={
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": st.integers(0, 3)})
    },
)


def chunked(pieces: list[bytes]) -> list[bytes]:
    """Return the pieces of an HTTP body of unknown length, with its end."""
    return [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece] + [b"0\r\n\r\n"]


@examples(150)
@given(st.data())
def test_exchanges_on_one_connection_are_observed_however_their_bytes_are_cut(data):
    """Requests of recorded and other paths, all before their answers; streams and whole answers."""
    sent, answered, expected = b"", list[bytes](), []
    for _ in range(data.draw(st.integers(0, 4))):
        path = data.draw(
            st.sampled_from(
                ["/v1/completions", "/v1/chat/completions?a=/", "/v1/models", "/v1/completions/x"]
            )
        )
        is_chat, prompt = "chat" in path, data.draw(texts)
        asked = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
        body = json.dumps(asked).encode()
        sent += (
            b"POST %s HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body
        )
        status, usage, streams = (
            data.draw(st.sampled_from([200, 404])),
            data.draw(usages),
            data.draw(st.booleans()),
        )
        said = data.draw(st.lists(st.tuples(st.integers(0, 1), texts), min_size=not streams, max_size=4))
        times = []
        if streams:
            field = (lambda text: {"delta": {"content": text}}) if is_chat else (lambda text: {"text": text})
            chunks = [{"choices": [{"index": n, **field(text)}]} for n, text in said]
            chunks += [] if usage is None else [{"choices": [], "usage": usage}]
            pieces = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [
                b"data: [DONE]\n\n"
            ]
            times = [len(answered) + 1 + n for n, (_, text) in enumerate(said) if text]
        else:
            field = (
                (lambda text: {"message": {"content": text}}) if is_chat else (lambda text: {"text": text})
            )
            whole = {"choices": [field(text) for _, text in said], "usage": usage}
            pieces = [json.dumps(whole).encode()]
        answered += [b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n" % status, *chunked(pieces)]
        first = [text for n, text in said if text and not n] if streams else [said[0][1]]
        if path in ("/v1/completions", "/v1/chat/completions?a=/"):
            expected.append(
                (Chat if is_chat else Completion, body, status, times, usage, "".join(first), prompt)
            )
    seen: list[Observed] = []
    waiting: deque[Observed | None] = deque()
    requests, answers = _Requests(waiting), _Answers(waiting, seen.append)
    cut = data.draw(st.integers(1, 40))
    for start in range(0, len(sent), cut):
        requests.feed(sent[start : start + cut], 7)
    whole_pieces, size = data.draw(st.booleans()), data.draw(st.integers(1, 30))
    for now, piece in enumerate(answered):  # an answer's piece comes at its number
        for start in range(0, len(piece), len(piece) if whole_pieces else size):
            answers.feed(piece[start : start + (len(piece) if whole_pieces else size)], now)
    found = [(o.kind, bytes(o.body), o.status, o.tokens_ns, o.usage, "".join(o.said)) for o in seen]
    assert found == [own[:-1] for own in expected]
    assert not waiting
    for observed, own in zip(seen, expected, strict=True):
        assert observed.arrival_ns == 7
        asked = chat_prompt([("user", own[-1])]) if own[0] is Chat else own[-1]
        assert observed.tokens(ByteTokenizer()) == (list(asked.encode()), list(own[-2].encode()))


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("[3, 4]", [3, 4]), ("[[5, 6], [7]]", [5, 6]), ('["ab", "c"]', [97, 98]), ("[]", []), ("{}", None), ("1", None)],
)  # fmt: skip
def test_of_several_prompts_the_first_is_recorded(prompt, tokens):
    observed = Observed(Completion, 0, bytearray(b'{"prompt": %s}' % prompt.encode()), said=["x", "y"])
    assert observed.tokens(ByteTokenizer()) == (None if tokens is None else (tokens, [120, 121]))


@examples(150)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**10), st.text("a", min_size=1, max_size=9), st.text("b", max_size=9), usages,
                  st.lists(st.integers(0, 10**9), max_size=3), st.sampled_from([199, 200, 299, 300])),
        max_size=6,
    ),
    st.integers(1, 4),
)  # fmt: skip
def test_rows_are_those_of_a_small_model(tmp_path_factory, ended, block):
    """Counts of the engine precede those of the tokenizer; answers are named only where both agree."""
    directory = tmp_path_factory.mktemp("t")
    trace = TraceFile(directory / "t.jsonl", ByteTokenizer(), block, b"salt", force=False)
    expected = []
    for number, (after_ns, prompt, answer, usage, gaps_ns, status) in enumerate(ended):
        arrival_ns, times = 5 + after_ns, [5 + after_ns + at for at in accumulate(gaps_ns)]
        body = bytearray(json.dumps({"prompt": prompt}).encode())
        observed = Observed(Completion, arrival_ns, body, "", status, times, usage, [answer])
        trace.add(observed, start_ns=5)
        counts = usage or {}
        inputs = counts.get("prompt_tokens") or len(prompt)
        outputs = counts.get("completion_tokens") or len(answer) or len(times)
        agree = inputs == len(prompt)
        named = ((prompt + answer) if agree else prompt)[: inputs + (outputs if agree else 0)]
        row = {
            "input_length": inputs,
            "output_length": outputs,
            "hash_ids": salted_ids(list(named.encode()), block, b"salt"),
        }
        row |= {"named_length": len(named)} if agree and answer else {}
        details = counts.get("prompt_tokens_details")
        row |= {"cached_tokens": details["cached_tokens"]} if details else {}
        waits = [pytest.approx(at / 1e6, abs=0.00051) for at in accumulate(gaps_ns)]
        row |= {"ttft_ms": waits[0], "token_ms": waits} if waits else {}
        if status in (200, 299):
            expected.append((after_ns, number, row | {"timestamp": pytest.approx(after_ns / 1e6, abs=1e-9)}))
    trace.flush()
    assert len(trace.part.read_text().splitlines()) == len(expected)
    assert (trace.close(), trace.skipped) == (len(expected), len(ended) - len(expected))
    rows = [json.loads(line) for line in trace.path.read_text().splitlines()]
    assert rows == [row for *_, row in sorted(expected, key=lambda each: each[:2])]
    assert not trace.part.exists()


def test_what_a_recording_left_is_replaced_by_force_alone_and_an_empty_one_leaves_nothing(tmp_path):
    path, part = tmp_path / "t.jsonl", tmp_path / "t.jsonl.part"
    opened = partial(TraceFile, path, ByteTokenizer(), 4, b"")
    part.write_text("left")
    with pytest.raises(OutputExistsError):
        opened(force=False)
    assert part.read_text() == "left"
    trace = opened(force=True)
    assert part.read_text() == ""
    trace.abandon()
    assert not part.exists()
    trace = opened(force=False)
    trace.add(Observed(Completion, 0, bytearray(b'{"prompt": "a"}'), status=200), 0)
    trace.abandon()
    assert len(part.read_text().splitlines()) == 1
    path.write_text("kept")
    with pytest.raises(OutputExistsError):
        opened(force=False)


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://h", ("h", 80)), ("http://h:9/v1", ("h", 9)), ("https://h", None), ("h:9", None), ("http://:9", None),
     ("http://h:0", ("h", 80)), ("http://h:99999", None), ("http://[::1", None)],
)  # fmt: skip
def test_an_upstream_is_an_address_of_plain_http(url, address):
    if address is None:
        with pytest.raises(UsageError, match="no upstream"):
            Upstream(url)
    else:
        assert (Upstream(url).host, Upstream(url).port) == address


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


def test_kept_texts_have_their_times_since_1970(tmp_path, monkeypatch):
    from kvcache_sim.extras.live.record import texts

    monkeypatch.setattr(texts.time, "time_ns", lambda: 1000)
    monkeypatch.setattr(texts.time, "monotonic_ns", lambda: 400)
    kept = texts.Texts(tmp_path / "t.jsonl", force=False)
    for body, tokens_ns in ((b'{"n": 1}', [7, 9]), (b"no JSON", [])):
        kept.add(SimpleNamespace(body=bytearray(body), arrival_ns=5, status=200, tokens_ns=tokens_ns, said=["a", "b"], usage={}))  # fmt: skip
    kept.close()
    first, second = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines())
    response = {"choices": [{"text": "ab"}], "usage": {}}
    assert first == {
        "time": 605,
        "status": 200,
        "request": {"n": 1},
        "first_token_time": 607,
        "response": response,
    }
    assert second == {"time": 605, "status": 200, "request": None, "response": response}
    with pytest.raises(OutputExistsError):
        texts.Texts(tmp_path / "t.jsonl", force=False)
    texts.Texts(tmp_path / "t.jsonl", force=True).close()
