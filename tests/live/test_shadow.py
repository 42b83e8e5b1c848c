"""`kvsim shadow`: an engine's cache seen through its events, other caches for comparison, and a live
server."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from dataclasses import replace
from functools import cache
from itertools import count, islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import OutputExistsError
from kvcache_sim.cli.main import run
from kvcache_sim.extras.live.clock import WallClock
from kvcache_sim.extras.live.events.announcer import Announcer, EventSettings
from kvcache_sim.extras.live.events.publisher import Endpoint
from kvcache_sim.extras.live.fleet import Fleet, Prompt
from kvcache_sim.extras.live.prompts import BlockNumbers
from kvcache_sim.extras.live.shadow.caches import OtherCache, Share, engine_share, other_shares
from kvcache_sim.extras.live.shadow.capture import Capture, captured
from kvcache_sim.extras.live.shadow.feed import Source
from kvcache_sim.extras.live.shadow.following import Following
from kvcache_sim.extras.live.shadow.watch import Compared, Watched, heading, line, remarks, replay, watch
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.simulation.live import LiveSimulation
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent, batch_of
from kvcache_sim.workload.imports.kv_lookups import LookUps
from kvcache_sim.workload.imports.naming import salted_names
from live_server import LONGEST, live_server
from support.examples import examples

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


# -- rules, event by event


def stored(at_ms: int, hashes: list[int], parent: int | None = None, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("stored", tuple(hashes), parent, 16, medium),))


def removed(at_ms: int, *hashes: int, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("removed", hashes, None, 0, medium),))


def seen(*batches: KvBatch) -> list[tuple[list[int | str], int, int, int]]:
    state = LookUps()
    found = [each for batch in batches for each in state.take(batch)]
    return [(each.blocks, each.found, each.prompt, each.found_below) for each in found]


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
    state.take(stored(7100, [9], 9))
    [circle] = state.take(stored(90_000, [10], 9))
    assert (circle.blocks, circle.beginning_unknown) == ([9, 10], True)


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


class SmallEngine:
    """An LRU cache of single blocks above another one, and the events that it would publish, a request at a time."""

    def __init__(self, blocks: int, below: int) -> None:
        self.sizes, self.now_ms = {"GPU": blocks, "CPU": below}, 0
        self.kept: dict[str, OrderedDict[int, int | None]] = {"GPU": OrderedDict(), "CPU": OrderedDict()}
        self.batches: list[KvBatch] = []
        self.most, self.evicted = 0, False

    def publish(self, *batches: KvBatch) -> None:
        self.batches += batches
        self.most = max(self.most, len(self.kept["GPU"]))

    def store(self, medium: str, blocks: list[int], parent: int | None) -> int:
        """Return how many of the blocks the cache below has once there is space for them."""
        kept, first = self.kept[medium], parent
        while len(kept) + len(blocks) > self.sizes[medium]:
            gone, before = kept.popitem(last=False)
            if medium == "GPU":
                self.evicted = True
                if self.sizes["CPU"] and gone not in self.kept["CPU"]:
                    self.store("CPU", [gone], before)
            self.publish(removed(self.now_ms, gone, medium=medium))
        for block in blocks:
            kept[block], parent = parent, block
        self.publish(stored(self.now_ms, blocks, first, medium))
        return sum(block in self.kept["CPU"] for block in blocks)

    def serve(self, prompt: list[int], answer: list[int], chunk: int, gaps_ms: list[int]) -> tuple:
        """Return what a look-up of the prompt finds: (blocks, found, length of the prompt, found below)."""
        gpu = self.kept["GPU"]
        found = next((n for n, block in enumerate(prompt) if block not in gpu), len(prompt))
        below = 0
        for block in reversed(prompt[:found]):
            gpu.move_to_end(block)
        first = (len(prompt) - found - 1) % chunk + 1 if chunk > 1 else len(prompt) - found
        cuts = [found, *range(found + first, len(prompt) + 1, chunk)]
        pieces = [prompt[a:b] for a, b in pairwise(cuts)] + [[block] for block in answer]
        parent = prompt[found - 1] if found else None
        for n, piece in enumerate(pieces):
            self.now_ms += gaps_ms[n % len(gaps_ms)] if n else 0
            below += self.store("GPU", piece, parent)
            parent = piece[-1]
        self.now_ms += 2001
        return [*prompt, *answer], found, len(prompt), below


@examples(60)
@given(st.data())
def test_the_events_of_a_small_engine_are_its_look_ups(data):
    """Chats that branch: each prompt is an earlier sequence or the start of one, and blocks of its own."""
    engine, follows = (
        SmallEngine(data.draw(st.integers(16, 40)), data.draw(st.sampled_from([0, 5, 30]))),
        Following(10**9),
    )
    sequences: list[list[int]] = [[]]
    fresh, expected = count(), []
    for _ in range(data.draw(st.integers(1, 12))):
        before = data.draw(st.sampled_from(sequences))
        before = before[: data.draw(st.integers(0, min(len(before), 10)))]
        # chunks behind the first have two blocks or more: a single one is taken for an answer's
        own, chunk = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))
        own += -own % chunk
        prompt = [*before, *islice(fresh, own)]
        answer = list(islice(fresh, data.draw(st.integers(0, 3))))
        gaps = data.draw(st.lists(st.sampled_from([0, 1, 1999, 2000]), min_size=1, max_size=3))
        missing = len(prompt) - next(
            (n for n, b in enumerate(prompt) if b not in engine.kept["GPU"]), len(prompt)
        )
        expected.append(engine.serve(prompt, answer, chunk if missing % chunk == 0 else len(prompt), gaps))
        sequences.append([*prompt, *answer])
    for batch in engine.batches:
        follows.take("e", batch)
    [own] = follows.engines.values()
    assert [(each.blocks, each.found, each.prompt, each.found_below) for each in own.look_ups] == expected
    state = own.state
    assert (state.held, state.most_held, state.has_evicted) == (
        len(engine.kept["GPU"]),
        engine.most,
        engine.evicted,
    )
    # forgotten lookups, and the third that only fills the caches
    follows._most_blocks = most = data.draw(st.integers(0, 60))
    follows.forget()
    kept = expected
    while sum(len(each[0]) for each in kept) > most and len(kept) > 1:
        kept = kept[1:]
    counted = kept[len(kept) // 3 :] if len(kept) < len(expected) else kept
    assert (own.forgotten, [each.blocks for each in own.look_ups]) == (
        len(expected) - len(kept),
        [e[0] for e in kept],
    )
    asked = sum(each[2] for each in counted)
    assert engine_share(own) == Share(sum(each[1] for each in counted), asked)
    assert engine_share(own, below=True) == Share(sum(each[3] for each in counted), asked)
    seen, unbounded = set(), 0
    for n, (blocks, _, prompt_blocks, _) in enumerate(kept):
        hit = next((k for k, block in enumerate(blocks) if block not in seen), len(blocks))
        unbounded += min(hit, prompt_blocks) if n >= len(kept) - len(counted) else 0
        seen |= set(blocks)
    others = [
        OtherCache("u", "unbounded"),
        OtherCache("all", more_blocks=len(seen)),
        OtherCache("x", times=len(seen)),
    ]
    others += [
        OtherCache("twice", times=2),
        OtherCache("as many more", more_blocks=9),
        OtherCache("none", times=0),
    ]
    *alike, twice, more, none = other_shares(own, 9, others)
    assert alike == [Share(unbounded, asked)] * 3
    assert none.asked == more.asked == asked
    assert none.found <= twice.found == more.found <= unbounded


@examples(60)
@given(st.lists(st.tuples(
    st.sampled_from("ab"), st.integers(0, 10**6), st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from(["stored", "removed", "cleared"]), st.lists(st.integers(0, 99), max_size=3),
                       st.none() | st.integers(0, 99), st.sampled_from(["GPU", "CPU"]), st.integers(0, 1)), max_size=3),
), max_size=5))  # fmt: skip
def test_a_capture_has_the_batches_with_salted_names(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("capture") / "c.jsonl"
    salted = {name: salted_names([str(name)], b"s")[0] for name in range(100)}
    written, expected = Capture(path, b"s", force=False), []
    for source, at_ms, rank, events in rows:
        batch, again = [], []
        for kind, hashes, parent, medium, group in events:
            names, before = (), None
            if kind != "cleared":
                names, before = tuple(hashes), parent if kind == "stored" else None
            for into, named in (
                (batch, dict(zip(names, names, strict=True)) | {before: before}),
                (again, salted | {None: None}),
            ):
                own = tuple(named[name] for name in names)
                into.append(
                    KvEvent(
                        kind,
                        own,
                        named[before],
                        16 * (kind == "stored"),
                        medium if kind != "cleared" else "GPU",
                        group,
                    )
                )
        written.add(source, KvBatch(at_ms * MS, tuple(batch), rank))
        expected.append((source, KvBatch(at_ms * MS, tuple(again), rank)))
    written.close()
    assert written.batches == len(rows)
    assert list(captured(str(path))) == expected
    with pytest.raises(OutputExistsError):
        Capture(path, b"s", force=False)
    Capture(path, b"s", force=True).close()


def test_remarks_count_what_is_not_counted():
    assert "no batch received" in remarks(Following(9))[0]
    following = Following(4)
    batches = [
        stored(0, [1, 2]),
        stored(1, [7], 99),
        stored(2, [8], 98),
        stored(9000, [3, 4]),
        stored(18000, [5, 6]),
    ]
    for batch in [*batches, KvBatch(0, (), unknown=3)]:
        following.take("e", batch)
    assert remarks(following)[-1].startswith("nothing was evicted yet")
    following.take("e", removed(19000, 1))
    following.forget()
    following.restarted("other")
    following.missed, following.unreadable = 4, 5
    starts = [re.match(r"([\d,]+) \w+", text)[0] for text in remarks(following)]
    assert starts == ["2 lookups", "1 lookups", "4 batches", "5 messages", "3 events", "1 restarts"]


def test_the_first_batch_after_a_restart_is_of_the_empty_cache():
    """Block 1 was stored before the restart, so the engine that stores it behind nothing has missed it again."""
    source, said = Source("e"), []
    feed = SimpleNamespace(sources=[source], take=lambda seconds: iter(rounds.pop(0)))

    def restarted():
        source.restarts, source.missed, source.unreadable = 1, 2, 3
        yield source, stored(5000, [1])

    rounds = [[(source, stored(0, [1, 2]))], restarted(), [(source, stored(9000, [3], 1))]]
    watched = Watched(Following(99), None, said.append)
    watch(feed, watched, Compared(()), 1000.0, lambda: not rounds)
    [engine] = watched.following.engines.values()
    assert [(e.blocks, e.found, e.beginning_unknown) for e in engine.look_ups] == [
        ([1, 2], 0, False), ([1], 0, False), ([1, 3], 1, False),
    ]  # fmt: skip
    assert (source.restarts, watched.following.restarts) == (0, 1)
    assert (watched.following.missed, watched.following.unreadable, len(said)) == (2, 3, 1)


def test_a_line_is_of_all_engines_and_of_unknown_size_unless_each_has_evicted():
    following, others = Following(99), (OtherCache("again"), OtherCache("all", "unbounded"))
    for name in "ab":
        for at_ms, own in ((0, [1, 2]), (5000, [3, 4])):
            following.take(name, stored(at_ms, own))
        following.take(name, stored(10_000, [5], 2))  # finds two of three

    def cells(blocks: int = 0) -> list[str]:
        return line(following, Compared(others, blocks), "now").split()[1:]

    assert cells() == ["28.6%", "–", "–", "28.6%", "6", "10"]
    assert cells(2)[2] == "0.0%"
    assert cells(5)[2] == "28.6%"
    following.take("a", removed(11_000, 3))
    assert cells()[2] == "–"
    following.take("b", removed(11_000, 3))
    assert cells()[2:] == ["28.6%", "28.6%", "6", "8"]
    following.take("a", stored(12_000, [3], 2, "CPU"))
    following.take("a", stored(20_000, [3, 9], 2))
    assert cells()[:2] == ["33.3%", "5.6%"]
    assert heading(Compared(others)).split() == [
        "time",
        "engine",
        "below",
        "again",
        "all",
        "look-ups",
        "held",
    ]


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


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("none.jsonl --salt-file salt", "--salt-file: has no effect without --capture"),
        ("none.jsonl --times 1.5 --every 3 --pause 2", "none.jsonl"),
    ],
)
def test_options_of_the_verb_that_cannot_hold(tmp_path, monkeypatch, capsys, options, line):
    """The others are in ``wrong_input_tables``."""
    monkeypatch.chdir(tmp_path)
    assert run(["shadow", *options.split()]) != 0
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
