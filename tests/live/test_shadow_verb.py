"""`kvsim shadow`: captures, feeds, the lines that it prints, and a live server that it follows."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import OutputExistsError
from kvcache_sim.cli.main import run
from kvcache_sim.extras.live.shadow.capture import Capture, Captured, captured
from kvcache_sim.extras.live.shadow.feed import Source
from kvcache_sim.extras.live.shadow.following import Following
from kvcache_sim.extras.live.shadow.watch import Compared, Watched, replay, watch
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent
from live_server import LONGEST, live_server
from support.examples import examples
from support.product.traces import salted_names

MS = 1_000_000


def stored(at_ms: int, hashes: list[int], parent: int | None = None, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("stored", tuple(hashes), parent, 16, medium),))


EVENT = st.tuples(
    st.sampled_from(["stored", "removed", "cleared"]),
    st.lists(st.integers(0, 99), max_size=3),
    st.none() | st.integers(0, 99),
    st.sampled_from(["GPU", "CPU"]),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from(["", "alice"]),
)
BATCH = st.tuples(
    st.sampled_from("ab"), st.integers(0, 10**6), st.integers(0, 2), st.lists(EVENT, max_size=3)
)


def event_of(kind, hashes, parent: int | None, medium, group: int, placed: bool, session, salt: bytes = b""):
    """Return an event; with a salt, its blocks' names are those of a capture."""
    names = (lambda name: salted_names([str(name)], salt)[0]) if salt else (lambda name: name)
    if kind == "cleared":
        return KvEvent(kind, (), None, 0, "GPU", group, placed)
    before = names(parent) if kind == "stored" and parent is not None else None
    named = str(names(session)) if session else ""
    return KvEvent(
        kind, tuple(map(names, hashes)), before, 16 * (kind == "stored"), medium, group, placed, named
    )


@examples(60)
@given(st.lists(BATCH, max_size=5))
def test_a_capture_has_the_batches_with_salted_names(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("capture") / "c.jsonl"
    written, expected = Capture(path, b"s", force=False), []
    for source, at_ms, rank, events in rows:
        written.add(source, KvBatch(at_ms * MS, tuple(event_of(*own) for own in events), rank))
        salted = KvBatch(at_ms * MS, tuple(event_of(*own, salt=b"s") for own in events), rank)
        expected.append((source, salted))
    written.close()
    assert written.batches == len(rows)
    assert list(captured(str(path))) == expected
    with pytest.raises(OutputExistsError):
        Capture(path, b"s", force=False)
    Capture(path, b"s", force=True).close()


class Rounds:
    """A feed whose batches come in rounds."""

    def __init__(self, source: Source, rounds: list) -> None:
        self.sources, self.rounds = [source], rounds

    def take(self, seconds: float):
        yield from self.rounds.pop(0)


def test_the_first_batch_after_a_restart_is_of_the_empty_cache():
    """Block 1 was stored before the restart, so the engine that stores it behind nothing has missed it again."""
    source, said = Source("e"), []

    def restarted():
        source.restarts, source.missed, source.unreadable = 1, 2, 3
        yield source, stored(5000, [1])

    rounds = [[(source, stored(0, [1, 2]))], restarted(), [(source, stored(9000, [3], 1))]]
    watched = Watched(Following(99), None, said.append)
    watch(Rounds(source, rounds), watched, Compared(()), 1000.0, lambda: not rounds)
    following = watched.following
    [engine] = following.engines.values()
    found = [(e.blocks, e.found, e.beginning_unknown) for e in engine.look_ups]
    assert found == [([1, 2], 0, False), ([1], 0, False), ([1, 3], 1, False)]
    assert (source.restarts, following.restarts, following.missed, following.unreadable) == (0, 1, 2, 3)
    assert len(said) == 1


def test_a_line_of_a_capture_stands_before_the_batch_of_its_time():
    said: list[str] = []
    batches = [Captured("a", stored(at_ms, [at_ms])) for at_ms in (0, 4999, 5000, 9000)]
    replay(batches, Watched(Following(99), None, said.append), Compared(()), 5)
    assert [text.split()[:2] + text.split()[-1:] for text in said] == [["+5", "s", "2"], ["+9", "s", "4"]]


def rates(line: str) -> list[float]:
    return [float(each) for each in re.findall(r"([\d.]+)%", line)]


@contextlib.contextmanager
def shadow(*arguments: str):
    command = [sys.executable, "-m", "kvcache_sim", "shadow", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LONGEST)
        for pipe in (process.stdout, process.stderr):
            pipe.close()


def free_ports(count: int) -> list[int]:
    """Return unused ports from the system."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def test_a_live_server_is_followed_until_a_signal(tmp_path):
    """Two chats of several turns: what is printed is what the server's own metrics say; the capture says the
    same."""
    capture = tmp_path / "capture.jsonl"
    events, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    options = ["--kv-events", events, "--kv-events-replay", replay, "--speed", "20"]
    sets = ["--set", "cache.block_size=16", "--set", "tiers.gpu.capacity=600 blocks"]
    with live_server(tmp_path / "run", "-c", "preset:one-gpu", *sets, *options) as server:
        api = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=30)

        def chat(texts: list[str]) -> None:
            said = [{"role": "system", "content": "You answer briefly. " * 20}]
            for text in texts:
                said.append({"role": "user", "content": text * 40})
                answer = api.chat.completions.create(model="llama-3.1-8b", messages=said, max_tokens=60)
                said.append({"role": "assistant", "content": answer.choices[0].message.content})
                time.sleep(0.15)  # three simulated seconds

        chat(["one ", "two "])
        follow = ["--kv-events", events, "--kv-events-replay", replay, "--every", "0.3", "--pause", "0.1"]
        follow += ["--capacity", "600"]
        with shadow(*follow, "--capture", str(capture)) as process:
            assert process.stdout is not None
            assert process.stdout.readline().split()[:2] == ["time", "engine"]
            chat(["three ", "four ", "five "])
            time.sleep(0.5)
            metrics = api._client.get(f"{server.url}/metrics").text
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=LONGEST)
            assert process.returncode == 0, err
    counts = {
        name: float(value)
        for name, value in re.findall(r"^vllm:prefix_cache_(\w+)_total\S* (\S+)$", metrics, re.M)
    }
    lines = out.splitlines()
    assert len(lines) >= 2
    engine, again, larger, _, unbounded = rates(lines[-1])
    assert engine / 100 == pytest.approx(counts["hits"] / counts["queries"], abs=0.04)
    assert again == larger == unbounded == pytest.approx(engine, abs=1)
    assert "batches are missing" not in err
    text = capture.read_text()
    assert "token_ids" not in text
    assert json.loads(text.splitlines()[0])["events"]
    done = subprocess.run(
        [sys.executable, "-m", "kvcache_sim", "shadow", str(capture), *follow[4:]],
        capture_output=True,
        check=True,
        text=True,
    )
    assert rates(done.stdout.splitlines()[-1]) == rates(lines[-1])
    trace, slower = tmp_path / "t.jsonl", tmp_path / "slower.jsonl"
    batches = [json.loads(line) for line in text.splitlines()]
    slower.write_text("".join(json.dumps(row | {"ts": row["ts"] * 20}) + "\n" for row in batches))
    assert run(["trace", "import", str(slower), "-o", str(trace)]) == 0
    assert len(trace.read_text().splitlines()) == int(lines[-1].split()[-2])


def test_a_feed_says_what_never_came(tmp_path):
    import zmq
    from kvcache_sim.extras.live.shadow.feed import Feed

    context = zmq.Context()
    with contextlib.closing(context.socket(zmq.PUB)) as engine:
        port = engine.bind_to_random_port("tcp://127.0.0.1")
        with contextlib.closing(Feed([f"tcp://127.0.0.1:{port}"], [])) as feed:
            [source] = feed.sources
            payload = msgspec.msgpack.encode([1.5, [{"type": "AllBlocksCleared"}], 0])

            def sent(*numbers: int, payload: bytes = payload) -> int:
                for number in numbers:
                    engine.send_multipart([b"", number.to_bytes(8, "big"), payload])
                return len(list(feed.take(0.3)))

            while not sent(7):
                pass  # until the subscription has arrived
            source.last = 7
            assert sent(8, 11, 12) == 3
            assert source.missed == 2
            assert sent(13, payload=b"\xc1") == 0
            assert sent(14, payload=b"\x91" * 5000) == 0
            assert source.unreadable == 2
            assert sent(0) == 1
            assert source.restarts == 1
    context.term()


def test_an_engine_whose_size_is_unknown_has_no_shadows_but_the_unbounded_one(capsys):
    log = Path(__file__).parents[1] / "logs" / "kv_events.jsonl"
    assert run(["shadow", str(log), "--every", "5", "--cpu", "100"]) == 0
    done = capsys.readouterr()
    heading, *lines = done.out.splitlines()
    assert "+ CPU 100" in heading
    assert [len(rates(line)) for line in lines] == [2, 2, 7]
    assert "1 lookups are not counted" in done.err
