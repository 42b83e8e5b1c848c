"""`kvsim record` before `kvsim serve`: what was sent stands in the trace, and no text stands anywhere."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import accumulate
from pathlib import Path

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import OutputExistsError
from kvcache_sim.extras.live.parsing import Chat, Completion
from kvcache_sim.extras.live.record.observed import Observed
from kvcache_sim.extras.live.record.proxy import Upstream, pass_on
from kvcache_sim.extras.live.record.trace_file import TraceFile
from kvcache_sim.extras.live.tokenizer import ByteTokenizer
from kvcache_sim.workload.prompts.body import Seen
from kvcache_sim.workload.prompts.stream import AnswerChunks
from live_server import LONGEST, live_server
from recorders import numbered, recorder
from support.chatml import chatml
from support.examples import examples
from support.product.traces import salted_ids

SECRET = "the word that stays private is quixotic"


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


def test_a_recorded_trace_is_what_the_server_saw_and_no_text_is_kept_unasked(tmp_path):
    """The texts that are kept, in another folder, import as the trace that was recorded."""
    trace, salt, texts = tmp_path / "recorded.jsonl", tmp_path / "salt", tmp_path / "kept" / "texts.jsonl"
    salt.write_bytes(b"mine")
    texts.parent.mkdir()
    more = ("--salt-file", str(salt), "--keep-text", str(texts))
    with live_server(tmp_path / "live", "-c", "preset:cpu-offload", "--speed", "20") as server:
        with recorder(server.url, trace, *more) as (_, url):
            answers = chats(url)
        run = server.stop()
    rows, served = rows_of(trace), rows_of(run / "arrivals.jsonl")
    keys = ("input_length", "output_length", "named_length")
    assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in served]
    assert numbered(rows) == [row["hash_ids"] for row in served]
    assert all(row["ttft_ms"] >= 0 and len(row["token_ms"]) <= 40 for row in rows if "token_ms" in row)
    kvsim("simulate", trace, "--set", "trace.block_size=16", "-o", tmp_path / "again", "-q")
    said = [SECRET, "quixotic", *(answer[:20] for own in answers for answer in own)]
    for index in tmp_path.rglob("*"):
        if index.is_file() and index != texts:
            data = index.read_bytes()
            assert not [text for text in said if text.encode() in data], index
    assert SECRET in texts.read_text()
    again = tmp_path / "imported.jsonl"
    kvsim("trace", "import", texts, "-o", again, "--bytes-per-token", "1")
    imported = rows_of(again)
    assert len(imported) == len(rows) == 6  # the one that was answered with an error is in neither
    assert numbered(imported) == numbered(rows)
    for one, other in zip(rows, imported, strict=True):
        assert [one[key] for key in keys] == [other[key] for key in keys]
        since = [row["timestamp"] - own[0]["timestamp"] for row, own in ((one, rows), (other, imported))]
        assert since[0] == pytest.approx(since[1], abs=0.01)
        assert one.get("ttft_ms") == pytest.approx(other.get("ttft_ms"), abs=0.02)


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kvsim(*words: object) -> None:
    command = [sys.executable, "-m", "kvcache_sim", *map(str, words)]
    subprocess.run(command, check=True, timeout=LONGEST, capture_output=True)


usages = st.none() | st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(0, 9)},
    optional={
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": st.integers(0, 3)})
    },
)


def exchange(path: str, prompt: str, said: list[tuple[int, str]], usage, status: int, streams: bool):
    """Return a request's body, its bytes and those of its answer."""
    is_chat = "chat" in path
    asked = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
    body = json.dumps(asked).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {len(body)}\r\n\r\n"
    if streams:
        texts = [{"delta": {"content": text}} if is_chat else {"text": text} for _, text in said]
        chunks = [{"choices": [{"index": n, **own}]} for (n, _), own in zip(said, texts, strict=True)]
        chunks += [{"choices": [], "usage": usage}] if usage else []
        pieces = [b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks] + [b"data: [DONE]\n\n"]
    else:
        texts = [{"message": {"content": text}} if is_chat else {"text": text} for _, text in said]
        pieces = [json.dumps({"choices": texts, "usage": usage}).encode()]
    answer = b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n" % status
    answer += b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return body, head.encode() + body, answer


SAID = [(0, "a"), (1, "b"), (0, ""), (0, "é")]
USAGE = {"prompt_tokens": 3, "completion_tokens": 9}
EXCHANGES = [
    ("/v1/completions", "one", SAID, None, 200, True),
    ("/v1/chat/completions?a=/", "é", SAID, USAGE, 200, True),
    ("/v1/models", "other path", SAID, USAGE, 200, True),
    ("/v1/chat/completions", "four", [(0, "x"), (1, "y")], USAGE, 404, False),
    ("/v1/completions/x", "other path", SAID, USAGE, 200, False),
    ("/v1/completions", "", [(0, "z"), (1, "y")], None, 200, False),
]


@pytest.mark.parametrize("cut", [1, 7, 40, 100_000])
def test_exchanges_on_one_connection_are_observed_however_their_bytes_are_cut(cut):
    """All requests are sent before their answers; both sides get the bytes that the other one sent."""
    made = [exchange(*one) for one in EXCHANGES]
    sent, answered = (b"".join(own[at] for own in made) for at in (1, 2))
    seen: list[Observed] = []

    async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
        for start in range(0, len(data), cut):
            writer.write(data[start : start + cut])
            await asyncio.sleep(0)

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(sent)) == sent
        await write(writer, answered)
        writer.close()

    async def go() -> None:
        behind = await asyncio.start_server(upstream, "127.0.0.1", 0)
        target = Upstream(f"http://127.0.0.1:{behind.sockets[0].getsockname()[1]}")
        proxy = await asyncio.start_server(lambda *ends: pass_on(*ends, target, seen.append), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*proxy.sockets[0].getsockname())
        await write(writer, sent)
        assert await reader.read(-1) == answered
        writer.close()
        for server in (proxy, behind):
            server.close()

    asyncio.run(go())
    recorded = [(one, own) for one, own in zip(EXCHANGES, made, strict=True) if "other" not in one[1]]
    assert len(seen) == len(recorded)
    for own, ((path, prompt, said, usage, status, streams), (body, *_)) in zip(seen, recorded, strict=True):
        first = [text for n, text in said if not n] if streams else [said[0][1]]
        assert (own.kind, bytes(own.body)) == (Chat if "chat" in path else Completion, body)
        assert (own.status, own.answer.usage) == (status, usage)
        assert len(own.tokens_ns) == (sum(bool(text) for _, text in said) if streams else 0)
        assert own.tokens_ns == sorted(own.tokens_ns)
        asked = chatml(("user", prompt)) if "chat" in path else prompt
        assert own.tokens(ByteTokenizer(), Seen()) == (list(asked.encode()), list("".join(first).encode()))


ENDED = st.tuples(
    st.integers(0, 10**10),
    st.text("a", min_size=1, max_size=9),
    st.text("b", max_size=9),
    usages,
    st.lists(st.integers(0, 10**9), max_size=3),
    st.sampled_from([199, 200, 299, 300]),
)


@examples(100)
@given(st.lists(ENDED, max_size=6), st.integers(1, 4))
def test_rows_are_those_of_a_small_model(tmp_path_factory, ended, block):
    """Counts of the engine precede those of the tokenizer; answers are named only where both agree."""
    directory = tmp_path_factory.mktemp("t")
    trace = TraceFile(directory / "t.jsonl", ByteTokenizer(), block, b"salt", force=False)
    expected = []
    for number, (after_ns, prompt, answer, usage, gaps_ns, status) in enumerate(ended):
        arrival_ns, times = 5 + after_ns, [5 + after_ns + at for at in accumulate(gaps_ns)]
        body = bytearray(json.dumps({"prompt": prompt}).encode())
        observed = Observed(Completion, arrival_ns, body, "", status, times, AnswerChunks(usage, [answer]))
        trace.add(observed, start_ns=5)
        counts = usage or {}
        details = counts.get("prompt_tokens_details")
        cached = details["cached_tokens"] if details else 0
        inputs = counts.get("prompt_tokens", 0)
        inputs = inputs + cached * (cached > inputs) or len(prompt)  # parts that exceed the prompt add up
        outputs = counts.get("completion_tokens") or len(answer) or len(times)
        agree = inputs == len(prompt)
        named = ((prompt + answer) if agree else prompt)[: inputs + (outputs if agree else 0)]
        row = {
            "input_length": inputs,
            "output_length": outputs,
            "hash_ids": salted_ids(list(named.encode()), block, b"salt"),
        }
        row |= {"named_length": len(named)} if agree and answer else {}
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
