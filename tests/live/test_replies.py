"""Answers as clients of `kvsim serve` read them: streams, whole answers, slow clients, clients that hang up."""

import asyncio
import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

pytest.importorskip("uvicorn")

from kvcache_sim.extras.live.answers import Answers
from kvcache_sim.extras.live.record.texts import Texts
from kvcache_sim.extras.live.tokenizer import ByteTokenizer
from live_apps import MS, Client, LiveApp, live, live_app
from live_fleets import turns
from support.product.live import Serving

COMPLETIONS = "/v1/completions"


def body_of(is_chat: bool, tokens: int, **more) -> tuple[str, dict]:
    if is_chat:
        asked = {"messages": [{"role": "user", "content": "x" * 50}]}
        return "/v1/chat/completions", asked | {"max_tokens": tokens, **more}
    return COMPLETIONS, {"prompt": "p" * 50, "max_tokens": tokens, **more}


def usage_of(tickets) -> dict:
    tokens, prompt = sum(own.tokens_out for own in tickets), tickets[0].prompt_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
        "prompt_tokens_details": {"cached_tokens": sum(own.cached_tokens for own in tickets)},
    }


def check_heads(answers: list[dict], is_chat: bool, kind: str) -> None:
    """One id, date and model; every choice has an index, logprobs and a reason."""
    heads = {(one["id"].partition("-")[0], one["object"], one["model"]) for one in answers}
    assert heads == {("chatcmpl" if is_chat else "cmpl", kind, "llama-3.1-8b")}
    assert len({(one["id"], one["created"]) for one in answers}) == 1
    for choice in (own for one in answers for own in one["choices"]):
        assert {"index", "logprobs", "finish_reason"} < choice.keys()


def check_stream(client: Client, tickets, is_chat: bool, each: bool, usage: dict | None, echo: str) -> None:
    """Check the chunks of a stream that has ended, by what was served."""
    check_heads(client.events, is_chat, "chat.completion.chunk" if is_chat else "text_completion")
    final = [event["usage"] for event in client.events if not event["choices"]]
    assert final == ([] if usage is None else [usage])
    assert b"".join(client.pieces).endswith(b"data: [DONE]\n\n")
    for n, ticket in enumerate(tickets):
        own = [event for event in client.events if event["choices"] and event["choices"][0]["index"] == n]
        reasons = [event["choices"][0]["finish_reason"] for event in own]
        assert set(reasons[:-1]) <= {None}
        assert reasons[-1] == ("abort" if ticket.aborted else "length")
        if is_chat and ticket.tokens_out:
            assert own[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        said = 0
        for event in own:
            text = event["choices"][0].get("text") or event["choices"][0].get("delta", {}).get("content", "")
            said += 0 if echo and text == echo else len(text)
            assert event.get("usage", {}).get("completion_tokens") == (said if each else None)


STEPS = st.lists(
    st.tuples(st.sampled_from((0, 5, 10, 35)), st.booleans(), st.none() | st.integers(0, 2)), max_size=6
)


@examples(40)
@given(
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    st.integers(1, 3),
    st.integers(1, 9),
    STEPS,
)
def test_a_client_reads_the_tokens_that_were_served(tmp_path_factory, flags, n, tokens, steps):
    """Chats and completions, streamed or whole, to a client that reads from time to time; some are cut off."""
    is_chat, streams, includes, each, echoes = flags
    options = {"stream_options": {"include_usage": includes, "continuous_usage_stats": each}}
    path, body = body_of(is_chat, tokens, n=n, stream=streams, **options)
    echo = "" if is_chat or not echoes else body["prompt"]
    drawn = Answers(ByteTokenizer(), 0)
    texts = ["".join(drawn.draw(tokens, [], 0).texts) for _ in range(n)]

    async def go() -> None:
        with live_app(tmp_path_factory.mktemp("live") / "run") as app:
            client = app.client(path, body | {"echo": bool(echo)})
            await turns()
            tickets = list(app.fleet.open.values())
            assert len(tickets) == n
            for ms, reads, cut in steps:
                if cut is not None and cut < n and not tickets[cut].closed:
                    app.fleet.abort(tickets[cut])
                client.reads.set() if reads else client.reads.clear()
                await app.passed(ms)
                if streams:
                    read = [len(client.text(at).removeprefix(echo)) for at in range(n)]
                    served = [own.tokens_out for own in tickets]
                    assert read == served if reads else all(a <= b for a, b in zip(read, served, strict=True))
            client.reads.set()
            await app.passed(10_000)
            await client.task
            assert client.most_waiting == 1
            out = [(echo if own.tokens_out or not streams else "") for own in tickets]
            out = [a + b[: own.tokens_out] for a, b, own in zip(out, texts, tickets, strict=True)]
            if streams:
                assert [client.text(at) for at in range(n)] == out
                check_stream(client, tickets, is_chat, each, usage_of(tickets) if includes else None, echo)
            else:
                answer = client.json
                check_heads([answer], is_chat, "chat.completion" if is_chat else "text_completion")
                assert answer["usage"] == usage_of(tickets)
                said = [own["message"]["content"] if is_chat else own["text"] for own in answer["choices"]]
                assert said == out
                ends = [own["finish_reason"] for own in answer["choices"]]
                assert ends == ["abort" if own.aborted else "length" for own in tickets]

    asyncio.run(go())


def test_an_answer_counts_the_cached_tokens_of_all_its_choices(tmp_path):
    async def ask(app: LiveApp):
        body = {"prompt": [7] * 40, "max_tokens": 2, "n": 3}
        await app.ask(COMPLETIONS, body)
        return (await app.ask(COMPLETIONS, body)).json["usage"]

    usage = live(tmp_path, ask)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 3 * 32
    assert usage["completion_tokens"] == 6


def test_a_request_arrives_when_its_body_came_unless_something_happened_since(tmp_path):
    """Arrivals have the time at which the whole body had come, in order."""

    async def go(app: LiveApp) -> None:
        first = app.client(COMPLETIONS, {"prompt": [1] * 40, "max_tokens": 3})
        second = app.client(COMPLETIONS, {"prompt": [1] * 40, "max_tokens": 3})
        await app.passed(1000)
        assert first.task.done()
        assert second.task.done()
        app.end()

    live(tmp_path, go)
    rows = [json.loads(line) for line in (tmp_path / "run" / "arrivals.jsonl").read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == [1e-6, 2e-6]


@pytest.mark.parametrize("n", [1, 3])
def test_a_slow_client_gets_what_came_meanwhile_in_one_piece_and_its_lag_is_that_of_the_first(tmp_path, n):
    """Tokens come at 10 ms each. The piece after the last read is written at once, all others wait for the read."""

    async def go(app: LiveApp) -> None:
        client = app.client(COMPLETIONS, {"prompt": "slow", "max_tokens": 200, "n": n, "stream": True})
        await turns()
        for ms in (1, *[10] * 20):
            await app.passed(ms)
        before = len(client.pieces)
        assert len(client.text()) == 20
        client.reads.clear()
        await app.passed(10_000)  # the whole answer comes while the client does not read
        assert (len(client.pieces), client.task.done()) == (before, False)
        client.reads.set()
        await turns()
        assert client.task.done()
        assert client.most_waiting == 1
        assert len(client.pieces) <= before + 2
        assert [len(client.text(choice)) for choice in range(n)] == [200] * n
        app.end()

    live(tmp_path, go)
    rows = pq.read_table(tmp_path / "run" / "lag.parquet").to_pylist()
    assert len(rows) == n
    assert {row["first_token_lag_ns"] // MS for row in rows} == {0}
    assert {round(row["worst_token_lag_ns"] / MS) for row in rows} == {10_201 - 220}


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_hangs_up_frees_its_blocks(tmp_path, reads):
    async def go(app: LiveApp) -> None:
        client = app.client(COMPLETIONS, {"prompt": "gone", "max_tokens": 5000, "stream": True})
        await app.passed(300)
        if not reads:
            client.reads.clear()
            await app.passed(300)
        client.left.set()
        await turns()
        assert client.task.done()
        await app.passed(1000)
        assert not app.fleet.open
        [replica] = app.fleet.simulation.replicas
        assert replica.store.occupancy(0).held_blocks == 0
        assert len(asyncio.all_tasks()) == 1
        app.end()

    live(tmp_path, go)
    [row] = [json.loads(line) for line in (tmp_path / "run" / "arrivals.jsonl").read_text().splitlines()]
    assert row["abort_after"] == pytest.approx(300 if reads else 600, abs=0.01)


def test_a_failing_write_ends_its_own_answer_and_is_not_kept(tmp_path):
    """The other answer, its name and its text are; of its two choices the first."""

    async def go(app: LiveApp) -> None:
        bad = app.client(COMPLETIONS, {"prompt": "bad", "max_tokens": 20, "stream": True})
        body = {"prompt": "good", "max_tokens": 20, "n": 2}
        good = app.client(COMPLETIONS, body, headers={"x_request_id": "x" * 130})
        await turns()
        bad.fails = True
        await app.passed(10_000)
        with pytest.raises(ConnectionError):
            await bad.task
        await good.task
        assert good.json["id"] == "cmpl-" + "x" * 128
        assert good.json["created"] == int(app.clock.started_s)
        assert (await app.ask("/load", method="GET")).json == {"server_load": 0}

    texts = tmp_path / "texts.jsonl"
    kept = Texts(texts, force=False)
    live(tmp_path, go, serving=Serving(texts=kept))
    kept.close()
    [row] = [json.loads(line) for line in texts.read_text().splitlines()]
    assert (row["status"], row["request"]["prompt"]) == (200, "good")
    assert len(row["response"]["choices"][0]["text"]) == 20
    assert row["response"]["usage"]["completion_tokens"] == 40
