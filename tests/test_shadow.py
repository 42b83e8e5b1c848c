"""`kvsim shadow`: an engine's cache seen through its events, other caches for comparison, and a live
server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import openai
import pytest
from kvcache_sim.cli.main import run
from kvcache_sim.live.clock import WallClock
from kvcache_sim.live.events.announcer import Announcer, EventSettings
from kvcache_sim.live.events.publisher import Endpoint
from kvcache_sim.live.fleet import Fleet, Prompt
from kvcache_sim.live.prompts import BlockNumbers
from kvcache_sim.live.shadow.caches import OtherCache, engine_share, other_shares
from kvcache_sim.live.shadow.following import Following
from kvcache_sim.live.shadow.watch import Compared, Watched, line, replay
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.simulation.live import LiveSimulation
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent, batch_of
from kvcache_sim.workload.imports.kv_lookups import LookUps
from live_server import LONGEST, live_server

MS = 1_000_000


class Standing(WallClock):
    """A clock that stands where a test puts it."""

    at_ns = 0

    def now_ns(self) -> int:
        return self.at_ns


class Truth:
    """Blocks that the simulated engine looked up and found."""

    def __init__(self) -> None:
        self.asked = self.found = 0

    def closed(self, ticket, sequence, now_ns) -> None:
        self.asked += ticket.prompt_tokens // 16
        self.found += ticket.cached_tokens // 16

    def arrived(self, *args) -> None: ...
    def on_abort(self, *args) -> None: ...
    def advanced(self, *args) -> None: ...
    def cleared(self, *args) -> None: ...


def chats(random: np.random.Generator, users: int, turns: int):
    """Yield prompts and answers of chats in rounds: each turn repeats its chat behind one of four
    prefixes."""
    said = [list(range(100 * (user % 4), 100 * (user % 4) + 320)) for user in range(users)]
    for _ in range(turns):
        for user in random.permutation(users).tolist():
            said[user] = [*said[user], *random.integers(0, 10**6, int(random.integers(40, 400))).tolist()]
            answer = random.integers(0, 10**6, int(random.integers(33, 120))).tolist()
            yield Prompt(list(said[user]), answer)
            said[user] += answer


@cache
def served(blocks: int, users: int = 10, turns: int = 6, gap_ms: int = 4000) -> tuple[list[KvBatch], Truth]:
    """Serve chats from a cache of a number of blocks; return its published batches and its true hits."""
    overrides = [f"tiers.gpu.capacity={blocks} blocks", "cache.block_size=16", "trace.path=unused"]
    overrides += ["replica.step_time=h100-llama-3.1-8b-tp1", "trace.block_size=16"]
    scenario, clock, truth = load_scenario(None, overrides), Standing(), Truth()
    batches: list[KvBatch] = []

    async def go() -> None:
        fleet = Fleet(
            lambda own: LiveSimulation(scenario.settings, own), clock, BlockNumbers(16, keep_tokens=True)
        )
        announcer = Announcer(fleet, EventSettings(Endpoint("tcp://127.0.0.1:0")))
        fleet.witnesses += [announcer, truth]
        [publisher] = announcer.publishers
        publisher.publish = lambda payload: batches.append(batch_of(msgspec.msgpack.decode(payload)))
        fleet.start()

        def wait(ms: int) -> None:
            until = clock.at_ns + ms * MS
            while (due := fleet.simulation.engine.next_ns) is not None and due <= until:
                clock.at_ns = due
                fleet.advance()
            clock.at_ns = until

        for prompt in chats(np.random.default_rng(3), users, turns):
            wait(gap_ms)
            fleet.submit(prompt)
        wait(60_000)
        announcer.close()

    asyncio.run(go())
    return batches, truth


def followed(batches: list[KvBatch], most_blocks: int = 10**9) -> Following:
    following = Following(most_blocks)
    for batch in batches:
        following.take("engine", batch)
    return following


@pytest.mark.parametrize("blocks", [250, 500, 1000])
def test_events_show_nearly_what_the_engine_found(blocks):
    batches, truth = served(blocks)
    [engine] = followed(batches).engines.values()
    share = engine_share(engine)
    assert share.rate == pytest.approx(truth.found / truth.asked, abs=0.01)
    assert share.asked == pytest.approx(truth.asked, rel=0.02)


@pytest.mark.parametrize(("blocks", "times"), [(250, 2.0), (250, 4.0)])
def test_a_shadow_finds_what_an_engine_of_that_size_does(blocks, times):
    batches, truth = served(blocks)
    _, larger = served(int(blocks * times))
    [engine] = followed(batches).engines.values()
    assert engine.state.has_evicted
    assert engine.state.most_held == pytest.approx(blocks, rel=0.03)
    again, more = other_shares(engine, blocks, [OtherCache("again"), OtherCache("more", times=times)])
    assert again.rate == pytest.approx(truth.found / truth.asked, abs=0.02)
    assert more.rate == pytest.approx(larger.found / larger.asked, abs=0.02)
    assert more.rate > again.rate + 0.05


def test_shares_are_counted_after_the_look_ups_that_fill_the_caches():
    batches, _ = served(500)
    [whole] = followed(batches).engines.values()
    following = followed(batches)
    most = sum(len(each.blocks) for each in whole.look_ups) // 2
    following._most_blocks = most
    following.forget()
    [engine] = following.engines.values()
    assert sum(len(each.blocks) for each in engine.look_ups) <= most
    assert engine.forgotten == len(whole.look_ups) - len(engine.look_ups)
    counted = list(engine.look_ups)[len(engine.look_ups) // 3 :]
    share = engine_share(engine)
    assert (share.found, share.asked) == (sum(e.found for e in counted), sum(e.prompt for e in counted))
    [again] = other_shares(engine, 500, [OtherCache("again")])
    assert again.asked == share.asked
    assert again.rate == pytest.approx(share.rate, abs=0.06)


# -- rules, event by event


def stored(at_ms: int, hashes: list[int], parent: int | None = None, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("stored", tuple(hashes), parent, 16, medium),))


def removed(at_ms: int, *hashes: int, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("removed", hashes, None, 0, medium),))


def seen(*batches: KvBatch) -> list[tuple[list[int | str], int, int, int]]:
    state = LookUps()
    found = [each for batch in batches for each in state.take(batch)]
    return [(each.blocks, each.found, each.prompt, each.found_below) for each in found]


def test_chunks_and_answers_continue_their_request():
    batches = [stored(0, [1, 2]), stored(100, [3, 4], 2), stored(200, [5], 4), stored(900, [6], 5)]
    assert seen(*batches) == [([1, 2, 3, 4, 5, 6], 0, 4, 0)]


def test_two_blocks_at_once_are_no_prompt_once_an_answer_has_begun():
    assert seen(stored(0, [1]), stored(9, [2], 1), stored(10, [3, 4], 2)) == [([1, 2, 3, 4], 0, 1, 0)]


def test_a_pause_or_another_parent_begins_a_look_up():
    first, late = stored(0, [1, 2, 3]), stored(2001, [4, 5], 3)
    assert seen(first, late)[1] == ([1, 2, 3, 4, 5], 3, 5, 0)
    assert len(seen(first, stored(2000, [4, 5], 3))) == 1
    assert seen(first, stored(1, [9], 2))[1] == ([1, 2, 9], 2, 3, 0)


def test_what_another_medium_has_was_found_there():
    batches = [stored(0, [1, 2, 3]), stored(1, [2, 3], 1, "CPU"), removed(2, 3), removed(3, 2)]
    assert seen(*batches, stored(9, [2, 3, 4], 1))[1] == ([1, 2, 3, 4], 1, 4, 2)
    assert seen(*batches, removed(4, 3, medium="CPU"), stored(9, [2, 3, 4], 1))[1][3] == 1


def test_copies_are_counted_and_an_unknown_beginning_is_said():
    state = LookUps()
    for batch in (stored(0, [1, 2]), stored(1, [1, 2]), removed(2, 2), removed(3, 1, 7)):
        state.take(batch)
    assert (state.held, state.most_held, state.has_evicted) == (2, 4, True)
    [known] = state.take(stored(5000, [3], 2))
    assert (known.found, known.beginning_unknown) == (2, False)
    [unknown] = state.take(stored(6000, [4], 77))
    assert unknown.beginning_unknown
    state.take(KvBatch(7000 * MS, (KvEvent("cleared"),)))
    assert state.held == 0
    [gone] = state.take(stored(7001, [8], 2))
    assert gone.beginning_unknown


def test_a_restart_forgets_the_blocks_of_each_rank_of_its_engine():
    following = Following(10**9)
    for source, rank in (("a", 0), ("a", 1), ("b", 0)):
        following.take(source, replace(stored(0, [1, 2]), rank=rank))
    following.restarted("a")
    held = {name: engine.state.held for name, engine in following.engines.items()}
    assert held == {"a": 0, "a rank 1": 0, "b": 2}


def test_engines_keep_equal_shares_and_look_ups_that_warm_are_not_counted():
    following = Following(24)
    for name in "ab":
        for k in range(6):
            following.take(name, stored(10_000 * k, [10 * k, 10 * k + 1]))
    for most, kept, counted in ((24, [6, 6], "12"), (13, [3, 3], "4")):
        following._most_blocks = most
        following.forget()
        assert [len(engine.look_ups) for engine in following.engines.values()] == kept
        assert line(following, Compared(()), "now").split()[-2] == counted


def test_a_line_of_a_capture_stands_before_the_batch_of_its_time():
    said: list[str] = []
    batches = [("a", stored(at_ms, [at_ms])) for at_ms in (0, 4999, 5000, 9000)]
    replay(batches, Watched(Following(99), None, said.append), Compared(()), 5)
    assert [text.split()[:2] + text.split()[-1:] for text in said] == [["+5", "s", "2"], ["+9", "s", "4"]]


# -- the verb


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
    from kvcache_sim.live.shadow.feed import Feed

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
    log = Path(__file__).parent / "logs" / "kv_events.jsonl"
    assert run(["shadow", str(log), "--every", "5", "--cpu", "100"]) == 0
    done = capsys.readouterr()
    heading, *lines = done.out.splitlines()
    assert "+ CPU 100" in heading
    assert [len(rates(line)) for line in lines] == [2, 2, 7]
    assert "1 lookups are not counted" in done.err


def test_another_cache_has_a_multiple_of_the_engines_blocks_and_more():
    assert OtherCache("twice", times=2.5).blocks(10) == 25
    assert OtherCache("with a tier", more_blocks=7).blocks(10) == 17


@pytest.mark.parametrize("tag", [["BlockStored"], {"type": 1}, None, 7])
def test_an_event_whose_type_is_no_text_is_of_an_unknown_type(tag: object):
    batch = batch_of([1.0, [[tag, [1]], {"type": tag}], 0])
    assert (batch.events, batch.unknown) == ((), 2)
