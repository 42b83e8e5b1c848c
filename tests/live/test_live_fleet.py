"""The fleet behind `kvsim serve` and its answers, without sockets: when tokens come, and slow clients."""

import asyncio
import gc
import io
import json
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import NEW_EXAMPLES, examples

pytest.importorskip("uvicorn")

from kvcache_sim.extras.live.answers import Answer, Answers
from kvcache_sim.extras.live.arrivals import ArrivalLog
from kvcache_sim.extras.live.chunks import Wording
from kvcache_sim.extras.live.fleet import Fleet, Prompt, TokenLags
from kvcache_sim.extras.live.generation import Choice, Generation, Generations, prompts_of
from kvcache_sim.extras.live.parsing import Chat, StreamOptions, parsed
from kvcache_sim.extras.live.reply import Reply
from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.extras.live.tokenizer import ByteTokenizer
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.sequence import Status
from kvcache_sim.simulation.options import DEFAULT_OPTIONS, RunOptions
from live_fleets import fleet_of, turns, wait


async def notified(overrides: Sequence[str], options: RunOptions, seed: int):
    """Return each token of random requests as (request, time), and how each left."""
    fleet, random = fleet_of(overrides, options), np.random.default_rng(seed)
    came: list[tuple[int, int]] = []
    notify = fleet.tokens
    fleet.tokens = lambda requests, now: (came.extend((r, now) for r in requests), notify(requests, now))
    gaps: Counter[int] = Counter()
    fleet.gap = lambda machine, gap_ns, times: gaps.update({gap_ns: times})
    kinds = {type(replica) for replica in fleet.simulation.replicas}
    fleet.start()
    tickets: list[Ticket] = []
    for _ in range(40):
        wait(fleet, int(random.integers(1, 30_000_000)))
        shared = [int(random.integers(0, 3))] * (16 * int(random.integers(0, 6)))
        own = random.integers(0, 1000, int(random.integers(1, 600))).tolist()
        tickets.append(fleet.submit(Prompt([*shared, *own], own[:1] * int(random.integers(1, 90)))))
        if random.random() < 0.2:
            fleet.abort(tickets[int(random.integers(len(tickets)))])
    wait(fleet, 600 * 10**9)
    assert not fleet.open
    last: dict[int, int] = {}
    between: Counter[int] = Counter()
    for request, now in came:
        if request in last:
            between[now - last[request]] += 1
        last[request] = now
    assert gaps == between
    reported = [(t.tokens_out, t.aborted, t.cached_tokens, t.last_ns) for t in tickets]
    return came, reported, kinds


def test_a_request_arrives_when_its_body_came_unless_something_happened_since():
    """Its text takes 5 ms to become tokens: the cluster began with it 5 ms ago."""

    async def arrivals() -> list[int]:
        fleet = fleet_of([])
        fleet.start()
        wait(fleet, 10_000_000)
        came = fleet.clock.at_ns
        fleet.clock.at_ns += 5_000_000
        first = fleet.submit(Prompt([1] * 40, [2] * 3), came)
        second = fleet.submit(Prompt([1] * 40, [2] * 3), came)
        return [first.arrival_ns - came, second.arrival_ns - came]

    assert asyncio.run(arrivals()) == [0, 1]


NOTIFIED = {
    "roomy": [],
    "preempting": ["tiers.gpu.capacity=90 blocks"],
    "small steps": ["replica.max_num_batched_tokens=64", "replica.max_num_seqs=7"],
    "a tier": ["tiers.gpu.capacity=120 blocks", "tiers.cpu.capacity=400 blocks"],
    "pool": ["cache.semantics=vllm", "tiers.gpu.capacity=150 blocks"],
    "late ends": ["replica.async_scheduling=stop-token"],
}


@pytest.mark.parametrize("seed", range(max(NEW_EXAMPLES, 1)))
@pytest.mark.parametrize("name", NOTIFIED)
def test_each_token_is_reported_once_and_in_order(name, seed):
    came, reported, kinds = asyncio.run(notified(NOTIFIED[name], DEFAULT_OPTIONS, seed))
    assert kinds == {NativeReplica}
    assert [now for _, now in came] == sorted(now for _, now in came)
    by_request = {request: sum(r == request for r, _ in came) for request, _ in came}
    assert [by_request.get(n, 0) for n in range(40)] == [tokens for tokens, *_ in reported]


class Client:
    """An ASGI server's connection to a client that may stop reading; ``pieces``: the chunks written to it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.most_waiting = self._waiting = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.left = asyncio.Event()
        self.ended = self.fails = False

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.fails:
            raise ConnectionError("a write that fails")
        self._waiting += 1
        self.most_waiting = max(self.most_waiting, self._waiting)
        await asyncio.sleep(0) if not self.reads.is_set() else None
        await self.reads.wait()
        self._waiting -= 1
        if message["type"] == "http.response.body":
            assert not self.ended
            self.pieces.append(message["body"])
            self.ended = not message.get("more_body")

    def texts(self, choice: int = 0) -> list[str]:
        events = b"".join(self.pieces).split(b"\n\n")
        assert events[-2:] == [b"data: [DONE]", b""]
        chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
        found = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice]
        assert found[-1]["finish_reason"] in ("length", "abort")
        return [c["delta"].get("content", "") for c in found]


def asked(
    fleet: Fleet, tokens: int, n: int = 1, ended: Callable[[Reply, bool], None] = lambda *_: None
) -> tuple[Client, asyncio.Task[None]]:
    body = json.dumps(
        {"messages": [{"role": "user", "content": "x" * 50}], "max_tokens": tokens, "n": n, "stream": True}
    )
    tokenizer = ByteTokenizer()
    generations = Generations(tokenizer, Answers(tokenizer, 1), 100_000)
    try:  # a short text is tokenized without waiting
        chat = parsed(body.encode(), Chat)
        generations.of(chat, prompts_of(chat), None).send(None)
        raise AssertionError("it waited")
    except StopIteration as made:
        generation = made.value
    client = Client()
    reply = Reply(fleet, Wording(generation, "m", "", 0, True), fleet.clock.now_ns(), ended)
    return client, asyncio.create_task(reply({}, client.receive, client.send))


@pytest.mark.parametrize("n", [1, 3])
def test_a_slow_client_gets_what_came_meanwhile_in_one_piece(n):
    async def go() -> None:
        fleet = fleet_of([])
        fleet.start()
        client, task = asked(fleet, 200, n)
        await turns()
        wait(fleet, 300_000_000)
        await turns()
        before = len(client.pieces)
        assert before > 20
        client.reads.clear()
        wait(fleet, 600 * 10**9)  # the whole answer comes while the client does not read
        await turns()
        assert len(client.pieces) == before
        assert not task.done()
        client.reads.set()
        await turns()
        assert task.done()
        assert client.ended
        assert client.most_waiting == 1
        assert len(client.pieces) <= before + 3
        for choice in range(n):
            assert len("".join(client.texts(choice))) == 200
        assert not fleet.open

    asyncio.run(go())


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_hangs_up_frees_its_blocks(reads):
    async def go() -> None:
        fleet = fleet_of([])
        fleet.start()
        client, task = asked(fleet, 5000)
        await turns()
        wait(fleet, 300_000_000)
        if not reads:
            client.reads.clear()
            wait(fleet, 300_000_000)
        client.left.set()
        await turns()
        assert task.done()
        wait(fleet, 1_000_000_000)
        assert not fleet.open
        [replica] = fleet.simulation.replicas
        assert replica.store.occupancy(0).held_blocks == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(go())


def test_a_reported_answer_is_freed_at_once():
    async def go() -> None:
        fleet = fleet_of([])
        fleet.start()
        replies: list[Reply] = []
        _, task = asked(fleet, 20, ended=lambda reply, _: replies.append(reply))
        await turns()
        wait(fleet, 60 * 10**9)
        await turns()
        assert task.done()
        await turns()
        left = weakref.ref(replies.pop())
        del task
        assert left() is None  # else it and its prompt stay until the garbage is looked for

    gc.disable()
    try:
        asyncio.run(go())
    finally:
        gc.enable()


def test_a_failing_write_ends_its_own_answer_and_no_other():
    async def go() -> None:
        fleet = fleet_of([])
        fleet.start()
        ends: list[bool] = []
        (bad, failing), (good, other) = (
            asked(fleet, 20, ended=lambda _, failed: ends.append(failed)) for _ in range(2)
        )
        await turns()
        bad.fails = True
        wait(fleet, 60 * 10**9)
        await turns()
        with pytest.raises(ConnectionError):
            await failing
        await other
        assert len("".join(good.texts())) == 20
        assert not bad.ended
        assert sorted(ends) == [False, True]

    asyncio.run(go())


def test_percentiles_of_lags_are_those_of_a_sorted_list():
    random = np.random.default_rng(1)
    lags, reported = TokenLags(), []
    for lag, tokens in zip(random.exponential(4e6, 500).astype(int), random.integers(1, 9, 500), strict=True):
        lags.add(int(lag), int(tokens))
        reported += [int(lag)] * int(tokens)
    reported.sort()
    assert lags.tokens == len(reported)
    for part in (0.5, 0.9, 0.99, 1.0):
        own = reported[max(int(np.ceil(part * len(reported))) - 1, 0)] / 1e6
        assert own <= lags.percentile_ms(part) <= own + 0.05
    assert TokenLags().percentile_ms(0.5) == 0.0
    assert "500" not in TokenLags().text


class Script:
    """A fleet whose tickets a test advances; notes what was written late and what was aborted."""

    def __init__(self, early):
        self.early, self.tickets, self.lags, self.aborted, self.now_ns = early, [], [], [], 5

    def submit(self, prompt, arrival_ns):
        self.tickets.append(ticket := Ticket(len(self.tickets), arrival_ns, 9, len(prompt.answer)))
        self.come(ticket, self.early[ticket.number])
        return ticket

    def come(self, ticket, tokens):
        """Let tokens come at the current time, as ``Fleet.tokens`` notes them."""
        tokens = min(tokens, ticket.output_tokens - ticket.tokens_out)
        if ticket.closed or not tokens:
            return
        ticket.tokens_out, ticket.last_ns = ticket.tokens_out + tokens, self.now_ns
        if ticket.due_ns < 0 and ticket.streams:
            ticket.due_ns = self.now_ns

    def close(self, ticket):
        if not ticket.closed:
            ticket.closed, ticket.cached_tokens = True, 10 + ticket.number
            ticket.aborted = ticket.tokens_out < ticket.output_tokens

    def wrote(self, ticket, since_ns, tokens):
        self.lags.append((ticket.number, since_ns, tokens))
        ticket.due_ns = -1

    def abort(self, ticket):
        self.aborted.append(ticket.number)


class Said:
    """By hand what a stream says: each choice's tokens so far, and since when the first waits to be sent."""

    def __init__(self, wording, script, total):
        self.wording, self.script, self.total = wording, script, total
        self.sent, self.since, self.ended = [0] * len(total), [-1] * len(total), [False] * len(total)
        self.lags, self.over = [], False

    def came(self):
        for n, ticket in enumerate(self.script.tickets):
            if ticket.tokens_out > self.sent[n] and self.since[n] < 0:
                self.since[n] = self.script.now_ns

    def piece(self):
        """Return the next piece; b"" if there is nothing to say."""
        own, said, wording = b"", self.lags, self.wording
        for n, ticket in enumerate(self.script.tickets):
            answer, out = wording.generation.choices[n].answer, ticket.tokens_out
            if out > self.sent[n]:
                if not self.sent[n]:
                    own += wording.opening(n)
                    if wording.generation.echo[n]:
                        own += wording.chunk(n, wording.generation.echo[n], None, 0)
                reason = answer.finish_reason if out == self.total[n] else None
                own += wording.chunk(n, "".join(answer.texts[self.sent[n] : out]), reason, out)
                said.append((n, self.since[n], out - self.sent[n]))
                self.sent[n], self.since[n] = out, -1
            if ticket.closed and not self.ended[n]:
                self.ended[n] = True
                own += wording.chunk(n, "", "abort", out) if out < self.total[n] else b""
        if all(self.ended) and not self.over:
            self.over = True
            own += wording.last(sum(self.sent), sum(10 + n for n in range(len(self.total))))
        return own


ANSWERS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3), st.sampled_from((None, None, 0, 1, 2)), st.booleans()),
    max_size=8,
)  # fmt: skip


@examples(150)
@given(ANSWERS, STEPS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
@example(
    [(4, 0), (2, 0)], [([(0, 1)], None, True), *([([(0, 1)], None, False)] * 3)], True, True, False, True
)
@example([(2, 0)], [([(0, 2)], 0, False)], True, True, False, False)
@example([(3, 0), (2, 1)], [([(0, 2)], 1, True), ([], 0, True)], False, True, False, False)
def test_a_reply_says_what_its_tickets_have(answers, steps, streams, chat, each, echoes):
    """Tokens of several answers come and are cut off; a client that does not read gets the rest in one piece."""
    total = [tokens for tokens, _ in answers]
    choices = [
        Choice(n, Prompt([], own), Answer(own, [f"{n}{k} " for k in own], ("stop", "length")[n % 2]))
        for n, own in enumerate(map(range, total))
    ]
    echo = ["" if chat or not echoes else f"prompt {n}: " for n in range(len(total))]
    options = StreamOptions(include_usage=True, continuous_usage_stats=each)
    wording = Wording(Generation(chat, choices, 40, streams, options, echo), "m", "r", 5, True)

    async def go() -> None:
        script, client, ends = Script([early for _, early in answers]), Client(), []
        said, expected, blocked = Said(wording, script, total), [], False
        reply = Reply(script, wording, 3, lambda *end: ends.append(end))
        task = asyncio.create_task(reply({"type": "http"}, client.receive, client.send))

        def next_piece(reads):
            nonlocal blocked
            if not blocked and streams and (piece := said.piece()):
                expected.append(piece)
                blocked = not reads

        await turns()
        said.came()
        next_piece(True)
        for comes, closes, reads in [*steps, ([(n, 4) for n in range(3)], None, True), ([], None, True)]:
            script.now_ns, reads = script.now_ns + 10, reads or not streams
            if reads and not client.reads.is_set():
                client.reads.set()
                await turns()
                blocked = False
                next_piece(True)
            elif not reads:
                client.reads.clear()
            for n, tokens in comes:
                if n < len(total):
                    script.come(script.tickets[n], tokens)
            said.came()
            for n, ticket in enumerate(script.tickets):
                if closes == n or ticket.tokens_out == ticket.output_tokens:
                    script.close(ticket)
            for ticket in script.tickets:
                if ticket.on_progress is not None:
                    ticket.on_progress()
            next_piece(reads)
            await turns()
            assert client.pieces == (expected[:-1] if blocked else expected) or not streams
            assert task.done() == (all(own.closed for own in script.tickets) and not blocked)
        await task
        assert ends == [(reply, False)]
        assert script.aborted == list(range(len(total)))
        assert all(own.on_progress is None for own in script.tickets)
        out = sum(own.tokens_out for own in script.tickets)
        cached = sum(10 + n for n in range(len(total)))
        if streams:
            assert script.lags == said.lags
        else:
            texts = [
                (echo[n] + "".join(choices[n].answer.texts[: own.tokens_out]), "abort" if own.aborted else choices[n].answer.finish_reason)
                for n, own in enumerate(script.tickets)
            ]  # fmt: skip
            assert json.loads(b"".join(client.pieces)) == wording.whole(texts, out, cached)
            assert script.lags == [
                (n, own.last_ns, 1) for n, own in enumerate(script.tickets) if own.tokens_out
            ]
        record = reply.record_in(SimpleNamespace())
        first = script.tickets[0].tokens_out
        assert (record.status, record.said) == (200, choices[0].answer.texts[:first])
        assert record.usage == wording.usage(out, cached)

    asyncio.run(go())


@examples(60)
@given(st.data())
def test_rows_and_lags_are_logged_in_order_of_arrival_once_all_before_have_left(data):
    file, tables, closings = io.BytesIO(), [], []
    file.close = lambda: closings.append(1)
    log = ArrivalLog(file, SimpleNamespace(write=tables.append, close=lambda: tables.append(None)))
    open_rows: dict[int, Ticket] = {}
    rows, left = list[dict[str, object]](), set[int]()

    def leave(number: int) -> None:
        log.closed(open_rows.pop(number), None, 0)
        left.add(number)
        written = next((n for n in range(len(rows)) if n not in left), len(rows))
        assert len(file.getvalue().splitlines()) == written

    for number in range(data.draw(st.integers(0, 8))):
        at_ns, inputs, outputs = (data.draw(st.integers(1, 10**8)) for _ in range(3))
        ids, gone_ns = (
            data.draw(st.lists(st.integers(0, 9), max_size=3)),
            data.draw(st.none() | st.integers(0, 10**8)),
        )
        ticket = open_rows[number] = Ticket(number, at_ns, inputs, outputs)
        log.arrived(ticket, ids)
        if gone_ns is not None:
            log.on_abort(ticket, at_ns + gone_ns)
        row = {
            "timestamp": at_ns / 1e6,
            "input_length": inputs,
            "output_length": outputs,
            "hash_ids": ids,
            "named_length": inputs + outputs,
        }
        rows.append(row | ({} if gone_ns is None else {"abort_after": gone_ns / 1e6}))
        for gone in data.draw(st.lists(st.sampled_from(sorted(open_rows)), unique=True, max_size=2)):
            leave(gone)
    for number in data.draw(st.permutations(sorted(open_rows))):
        leave(number)
    log.close()
    assert [json.loads(line) for line in file.getvalue().splitlines()] == rows
    assert (log.requests, closings) == (len(rows), [1])
    *lags, closed = tables
    assert closed is None
    assert [number for table in lags for number in table["request"].tolist()] == list(range(len(rows)))


def test_the_lags_of_the_last_answers_wait_for_their_clients():
    tables = []
    log = ArrivalLog(io.BytesIO(), SimpleNamespace(write=tables.append, close=lambda: None))
    tickets = [Ticket(number, number, 1, 2) for number in range(1500)]
    for ticket in tickets:
        log.arrived(ticket, [])
        log.closed(ticket, None, 0)
    assert [len(table["request"]) for table in tables] == [512]
    tickets[511].late(4)  # written already
    for ticket in tickets[512:]:
        ticket.late(7)
        ticket.late(9 + ticket.number)
    log.close()
    assert len(tables) == 2
    names = ("first_token_lag_ns", "worst_token_lag_ns")
    first, worst = (np.concatenate([table[name] for table in tables]).tolist() for name in names)
    assert first == [-1] * 512 + [7] * 988
    assert worst == [0] * 512 + [9 + number for number in range(512, 1500)]


class Scripted:
    """A simulation, its blocks and a witness in one, which note what they are asked."""

    def __init__(self, **answers):
        self.calls: list[tuple] = []
        self.answers = answers
        self.engine = SimpleNamespace(next_ns=None)
        self.fed, self.last_machine, self.ids_kept, self.given, self.block_size = 3, 2, 0, 50, 4
        self.at_ns = 100

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given: self.calls.append((name, *given)) or self.answers.get(name)

    def number(self, tokens, salt):
        return [len(tokens), len(salt)]

    def now_ns(self):
        return self.at_ns

    def feed(self, window, given, machine):
        row = (window.arrival_ns.tolist(), window.input_tokens.tolist(), window.output_tokens.tolist())
        self.calls.append(("feed", *row, given, machine))


def scripted(**answers):
    own = Scripted(**answers)
    fleet = Fleet(lambda _: own, own, own)
    fleet.witnesses.append(own)
    return own, fleet


def test_a_request_is_announced_fed_and_run_to_and_its_abort_is_run_to_at_once():
    own, fleet = scripted()
    ticket = fleet.submit(Prompt([1] * 5, [2] * 3, "stop", salt="salt", machine=1))
    assert (ticket.number, ticket.arrival_ns, ticket.machine, ticket.finish_reason) == (3, 100, 2, "stop")
    assert own.calls[0] == ("arrived", ticket, [8, 4])
    assert own.calls[1:] == [("feed", [100], [5], [3], 50, 1), ("run_to", 100), ("advanced", 100)]
    own.calls.clear()
    fleet.abort(ticket)
    fleet.abort(ticket)  # no effect
    assert own.calls == [("on_abort", ticket, 101), ("abort", 3, 101), ("run_to", 101), ("advanced", 101)]
    own.at_ns = 90
    own.calls.clear()
    fleet.advance()  # the clock has not caught up
    assert own.calls == [("run_to", 101), ("advanced", 101)]
    closed = fleet.submit(Prompt([1], [2]), 95)
    assert closed.arrival_ns == 102
    closed.closed = True
    own.calls.clear()
    fleet.abort(closed)
    assert own.calls == []


@pytest.mark.parametrize("is_idle", [True, False])
def test_caches_are_emptied_as_of_the_time_that_was_run_to(is_idle):
    own, fleet = scripted(clear=is_idle)
    fleet.ran_to_ns = 70
    assert fleet.reset() is is_idle
    assert own.calls == [("advanced", 70), ("clear",), *([("cleared", 70)] if is_idle else [])]


def test_tokens_of_a_step_are_counted_with_their_gaps_by_machine():
    own, fleet = scripted()
    gaps, noted = [], []
    for number, (machine, last_ns, streams) in enumerate([(0, 60, True), (0, 60, False), (1, 60, True), (1, 40, False), (1, -1, True)]):  # fmt: skip
        ticket = fleet.open[number] = Ticket(
            number, 0, 5, 9, machine=machine, last_ns=last_ns, streams=streams
        )
        ticket.on_progress = lambda number=number: noted.append(number)
    fleet.open[2].due_ns = 55  # its client has not taken the token before
    fleet.gap = lambda *gap: gaps.append(gap)
    fleet.tokens([0, 1, 2, 3, 4], 90)
    assert gaps == [(0, 30, 2), (1, 30, 1), (1, 50, 1)]
    assert [(t.tokens_out, t.last_ns, t.due_ns) for t in fleet.open.values()] == [
        (1, 90, 90), (1, 90, -1), (1, 90, 55), (1, 90, -1), (1, 90, 90)
    ]  # fmt: skip
    left = SimpleNamespace(request=3, cached_prefix_length_used=-1, status=Status.ABORTED)
    ticket, first = fleet.open[3], fleet.open[0]
    fleet.closed(SimpleNamespace(request=0, cached_prefix_length_used=4, status=Status.FINISHED), 92)
    assert (first.closed, first.aborted, first.cached_tokens) == (True, False, 4)
    own.calls.clear()
    fleet.closed(left, 95)
    assert (ticket.closed, ticket.aborted, ticket.cached_tokens, 3 in fleet.open) == (True, True, 0, False)
    assert own.calls == [("closed", ticket, left, 95)]
    assert noted == []
    fleet.advance()
    fleet.advance()
    assert noted == [0, 4, 0, 3]


@pytest.mark.parametrize(("kept", "ids", "forgets"), [(0, 1 << 14, False), (0, (1 << 14) + 1, True), (5, (1 << 14) + 10, False), (5, (1 << 14) + 11, True)])  # fmt: skip
def test_ids_of_finished_requests_are_forgotten_from_time_to_time(kept, ids, forgets):
    own, fleet = scripted(forget=[7, 8, 9])
    fleet._kept, own.ids_kept, fleet.open[9] = kept, ids, Ticket(9, 0, 1, 1)
    fleet.submit(Prompt([1], [2]))
    asked = [call for call in own.calls if call[0] in ("forget", "keep")]
    assert asked == ([("forget", [3, 9]), ("keep", [7, 8, 9])] if forgets else [])
    assert fleet._kept == (3 if forgets else kept)


def test_one_timer_wakes_a_fleet_and_stops_with_it(monkeypatch):
    own, fleet = scripted(seconds_until=-2.0)
    timers: list = []

    def call_later(delay, call):
        timers.append((delay, call))
        number = len(timers)
        return SimpleNamespace(cancel=lambda: timers.append(("cancelled", number)))

    monkeypatch.setattr(
        "kvcache_sim.extras.live.fleet.asyncio.get_running_loop",
        lambda: SimpleNamespace(call_later=call_later),
    )
    fleet.advance()
    assert timers == []
    own.engine.next_ns = 500
    fleet.advance()
    assert ("seconds_until", 500) in own.calls
    own.answers["seconds_until"] = 0.25
    fleet.advance()
    assert timers == [(0.0, fleet.advance), ("cancelled", 1), (0.25, fleet.advance)]
    own.engine.next_ns = None
    fleet.advance()
    assert timers[3:] == [("cancelled", 3)]
    own.engine.next_ns = 600
    fleet.advance()
    fleet.open[9] = ticket = Ticket(9, 0, 1, 1)
    own.engine.next_ns = None
    fleet.stop()
    assert ticket.aborted
    assert timers[4:] == [(0.25, fleet.advance), ("cancelled", 5)]
    own.engine.next_ns = 700
    fleet.advance()
    fleet.stop()
    assert timers[6:] == [(0.25, fleet.advance), ("cancelled", 7)]


def test_events_that_were_published_are_forgotten_from_time_to_time(monkeypatch):
    pytest.importorskip("zmq")
    from kvcache_sim.extras.live.events import announcer

    monkeypatch.setattr(announcer, "_FORGET_BATCHES", 3)
    monkeypatch.setattr(announcer, "packed", lambda batch, layout: (batch.events, batch.ts, layout))
    own, sent, forgotten = announcer.Announcer.__new__(announcer.Announcer), [], []
    own._fleet = SimpleNamespace(clock=SimpleNamespace(date_s=lambda now_ns: now_ns / 2))
    own._settings, own._batches = SimpleNamespace(layout="map"), 0
    own.publishers = [None, SimpleNamespace(publish=sent.append)]
    own._sources = [SimpleNamespace(forget=lambda: forgotten.append(len(sent)))] * 2
    own._publish(1, [], 5)
    for number in range(7):
        own._publish(1, [number], 10 * number)
    assert sent == [([number], 5.0 * number, "map") for number in range(7)]
    assert forgotten == [3, 3, 6, 6]
