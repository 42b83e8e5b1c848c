"""The rules of `kvsim serve` without sockets: what a body asks for, who may do what, how long a connection may take."""

import asyncio
import json
import re
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples

pytest.importorskip("uvicorn")

import uvicorn
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.live import app, protocol, server, serving
from kvcache_sim.extras.live.answers import Answer, Answers, _pieces, _stopped
from kvcache_sim.extras.live.chunks import DONE, Wording, encoded
from kvcache_sim.extras.live.generation import Generation, Generations, prompts_of
from kvcache_sim.extras.live.parsing import Chat, Completion, Message, Part, StreamOptions, pairs
from kvcache_sim.extras.live.prompts import BlockNumbers
from kvcache_sim.extras.live.refusals import Refusal, refusal_of
from kvcache_sim.extras.live.server import Ports
from kvcache_sim.extras.live.tokenizer import ByteTokenizer, tokenizer_of
from kvcache_sim.workload.chat_template import chat_prompt
from live_fleets import fleet_of, turns, wait
from support.word_tokenizer import write_tokenizer
from uvicorn.server import ServerState

# --- what a body asks for ----------------------------------------------------------------------------------

TEMPLATE = len(chat_prompt([("user", "")]))
COUNT = st.none() | st.integers(0, 26)
SHARED = {"n": st.none() | st.integers(1, 4), "max_tokens": COUNT, "min_tokens": st.integers(0, 12)}
TOKENS = st.lists(st.integers(0, 127), max_size=23)
TEXT = st.text("ab", max_size=23)
PROMPTS = st.lists(TOKENS, min_size=1, max_size=4) | TEXT | st.lists(TEXT, min_size=1, max_size=4)
COMPLETIONS = st.builds(Completion, prompt=PROMPTS | TOKENS.filter(bool), echo=st.booleans(), **SHARED)
CHATS = st.builds(Chat, messages=st.just([Message("user", "")]), max_completion_tokens=COUNT, **SHARED)


def sequences_of(body, window, most_tokens):
    """Return each answer as (prompt, tokens of the answer), written out one by one; None: refused."""
    if isinstance(body, Chat):
        prompts = [chat_prompt([("user", "")])]
        most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        most = window - len(prompts[0]) if most is None else most
    else:
        is_one = isinstance(body.prompt, str) or isinstance(body.prompt[0], int)
        prompts = [body.prompt] if is_one else body.prompt
        most = 16 if body.max_tokens is None else body.max_tokens
    encoded = [list(one.encode()) if isinstance(one, str) else one for one in prompts]
    asked = [(prompt, most) for prompt in encoded for _ in range(body.n or 1)]
    lengths = [len(prompt) + tokens for prompt, tokens in asked]
    right = max(lengths) <= window and sum(lengths) <= most_tokens and all(encoded)
    return asked if right and 1 <= most >= body.min_tokens else None


class Drawn:
    """Answers of as many tokens as asked for."""

    def draw(self, tokens, stops, min_tokens):
        return Answer([7] * tokens, ["x"] * tokens, "length")


def made_of(generations, body):
    prompts = prompts_of(body)
    counted = generations.refuse_too_much(body, prompts)
    try:  # short texts are tokenized without waiting
        generations.of(body, prompts, None).send(None)
    except StopIteration as made:
        return counted, made.value
    raise AssertionError("it waited")


@examples(150)
@example(Completion(prompt=[[1] * 12] * 3, max_tokens=8))  # as many tokens as are taken
@given(COMPLETIONS | CHATS)
def test_the_work_of_a_body_is_that_of_its_answers_one_by_one(body):
    window = TEMPLATE + 9 if isinstance(body, Chat) else 24
    generations = Generations(ByteTokenizer(), Drawn(), window, 5 * window // 2)
    expected = sequences_of(body, window, 5 * window // 2)
    if expected is None:
        with pytest.raises(Refusal) as refused:
            made_of(generations, body)
        assert refused.value.status == 400
        return
    counted, made = made_of(generations, body)
    assert [(c.prompt.tokens, len(c.prompt.answer)) for c in made.choices] == expected
    assert counted == len(expected)
    n = body.n or 1
    assert made.prompt_tokens == sum(len(prompt) for prompt, _ in expected[::n])
    echoes = isinstance(body, Completion) and body.echo
    assert made.echo == [bytes(prompt).decode() if echoes else "" for prompt, _ in expected]


@pytest.mark.parametrize("prompt", [[], ["a", [1]], [1, [2]], ["a", 1], [[1], 2], [[1], "a"]])
def test_prompts_of_several_kinds_are_refused(prompt):
    with pytest.raises(Refusal, match="prompt takes a text") as refused:
        prompts_of(Completion(prompt=prompt))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"prompt": [1] * 10, "max_tokens": 14}, 1),
        ({"prompt": [1] * 10, "max_tokens": 15}, "maximum context length"),
        ({"prompt": "abcde", "max_tokens": 14}, 1),
        ({"prompt": "abcde", "max_tokens": 15}, "maximum context length"),
        ({"prompt": "abcd"}, 1),  # 16 tokens of answer
        ({"prompt": "abcde"}, "maximum context length"),
        ({"prompt": [[1], [1] * 10], "max_tokens": 14, "n": 2}, 4),  # 78 tokens
        ({"prompt": [[1, 1], [1] * 10], "max_tokens": 14, "n": 2}, "4 answers and their prompts have up to 80 tokens"),
        ({"prompt": ["a", "b", "c"], "max_tokens": 11, "n": 2}, 6),
        ({"prompt": ["a", "b", "c"], "max_tokens": 12, "n": 2}, "6 answers and their prompts have up to 84 tokens"),
    ],
)  # fmt: skip
def test_work_is_counted_by_lengths_alone(fields, answers):
    """A window of 24 tokens, 78 tokens a body; a character is at least two tokens."""
    counts = SimpleNamespace(least_tokens=lambda text: 2 * len(text))
    generations, body = Generations(counts, None, 24, 78), Completion(**fields)
    if isinstance(answers, int):
        assert generations.refuse_too_much(body, prompts_of(body)) == answers
        return
    with pytest.raises(Refusal, match=answers):
        generations.refuse_too_much(body, prompts_of(body))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        ("", ""),
        (None, ""),
        ([], ""),
        ([Part("text", "a"), Part("image_url"), Part("text", "b")], "ab"),
    ],
)
def test_a_message_has_the_text_of_all_its_parts(content, text):
    assert pairs([Message("user", content), Message("tool", "c")]) == [("user", text), ("tool", "c")]


def test_the_text_of_a_token_depends_on_the_four_before_it():
    """A tokenizer that writes a token as its sum with the tokens decoded before it."""
    sums = SimpleNamespace(
        decode=lambda tokens: "".join(f"{sum(tokens[: n + 1])}," for n in range(len(tokens)))
    )
    assert _pieces(sums, [1, 2, 4, 8, 16, 32, 64]) == ["1,", "3,", "7,", "15,", "31,", "62,", "124,"]


@pytest.mark.parametrize(
    ("words", "text", "least"),
    [(["ab", "a", "b"], "ab ab", 0), (["a", "bb"], "a" * 59, 2), (["a"], "a" * 60, 3)],
)
def test_a_text_has_a_token_for_each_four_times_the_longest_token(tmp_path, words, text, least):
    """The longest token is the one for unknown words, of five characters."""
    write_tokenizer(tmp_path / "tokenizer.json", words)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        own = tokenizer_of(path)
        assert own.name == str(tmp_path / "tokenizer.json")
        assert own.least_tokens(text) == least
        assert own.encode("a b a") == own.encode("a b a") == [own.encode(word)[0] for word in "aba"]
        assert own.decode(own.encode("a")) == "a"
    with pytest.raises(UsageError, match="no tokenizer there"):
        tokenizer_of(tmp_path / "none")


@pytest.mark.parametrize("lengths", [[5, 1], [60_000, 3, 25_000], [24_000] * 9])
def test_answers_are_parts_of_one_text_without_end(lengths):
    """From where the seed says, round and round; an element, a slice and the length are those of a list."""
    answers, starts = Answers(ByteTokenizer(), 11), stream(11, "live/answers")
    text = answers._tokens[:]
    for length in lengths:
        start = int(starts.integers(0, len(text)))
        own = [text[(start + at) % len(text)] for at in range(length)]
        drawn = answers.draw(length, [], 0)
        assert (len(drawn.tokens), len(drawn.texts), drawn.finish_reason) == (length, length, "length")
        assert drawn.tokens[:] == own
        assert drawn.texts[1:] == [chr(token) for token in own[1:]]
        assert [drawn.tokens[at] for at in (0, length // 2, length - 1)] == [
            own[at] for at in (0, length // 2, -1)
        ]
        assert drawn.tokens[-3:length:2] == own[-3:length:2]
        for outside in (-1, length):
            with pytest.raises(IndexError):
                drawn.texts[outside]


@pytest.mark.parametrize(
    ("error", "status", "kind", "message"),
    [
        (Refusal(429, "busy"), 429, "RateLimitError", "busy"),
        (Refusal(418, "tea", "pot"), 418, "BadRequestError", "tea"),
        (ValueError("x"), 500, "InternalServerError", "the simulation failed: ValueError: x"),
    ],
)
def test_an_error_is_a_refusal_with_its_status(error, status, kind, message):
    found = refusal_of(error)
    assert (found is error) is isinstance(error, Refusal)
    param = getattr(error, "param", None)
    assert found.body() == {"error": {"message": message, "type": kind, "param": param, "code": status}}


@example([([], "")] * 5 + [([0, 0], "")] * 2, 1, True, frozenset([1]))
@examples(60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), max_size=11), st.sampled_from(["", "s", "t"])), max_size=12
    ),
    st.integers(1, 3),
    st.booleans(),
    st.frozensets(st.integers(0, 9)),
)
def test_blocks_are_numbered_by_all_tokens_up_to_their_end(prompts, size, keeps, kept):
    """Against a table of whole prefixes by salt; what is forgotten in between gets new numbers."""
    own, table, given_numbers = BlockNumbers(size, keeps), {}, 0
    for at, (tokens, salt) in enumerate(prompts):
        if at == 6:
            own.keep(kept)
            table = {key: number for key, number in table.items() if number in kept}
        expected = []
        for end in range(size, len(tokens) + 1, size):
            key = (salt, tuple(tokens[:end]))
            if key not in table:
                table[key], given_numbers = given_numbers, given_numbers + 1
            expected.append(table[key])
        assert own.number(tokens, salt) == expected
        for index, number in enumerate(expected):
            found = own.block(number)
            assert (found is not None) is keeps
            if found is not None:
                here = tuple(tokens[index * size : (index + 1) * size])
                assert (found.number, found.tokens, found.salt) == (number, here, "" if index else salt)
                assert found.parent == (expected[index - 1] if index else -1)
    assert (len(own), own.given) == (len(table), given_numbers)


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (404, None, "no route /v1/x"),
        (405, {"Allow": "GET, HEAD"}, "/v1/x takes GET, HEAD"),
        (405, None, "/v1/x takes "),
    ],
)
def test_a_route_that_is_not_there_is_named(status, headers, said):
    request = SimpleNamespace(url=SimpleNamespace(path="/v1/x"))
    answer = asyncio.run(app._no_route(request, app.HTTPException(status, headers=headers)))
    assert answer.status_code == status
    assert json.loads(answer.body)["error"]["message"] == said


class Thrice(ByteTokenizer):
    """Three tokens a character, of which only one is known before the text is tokenized."""

    def encode(self, text):
        return [7] * (3 * len(text))

    def least_tokens(self, text):
        return 1


CONTEXT, STOPS, LEAST = "total of at least 11 tokens", "stop takes 1 to 64 texts", "min_tokens must be"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"max_tokens": 4}, ""),
        ({"max_tokens": 5}, CONTEXT),
        ({"prompt": ["a", "ab"], "max_tokens": 5}, CONTEXT),
        ({"prompt": [[1, 2], [3] * 6], "max_tokens": 5}, CONTEXT),
        ({"max_tokens": 4, "stop": ["x"] * 64}, ""),
        ({"max_tokens": 4, "stop": ["x"] * 65}, STOPS),
        ({"max_tokens": 4, "stop": ["x", ""]}, STOPS),
        ({"max_tokens": 4, "stop": ""}, STOPS),
        ({"max_tokens": 1}, ""),
        ({"max_tokens": 0}, "must be at least 1, got 0"),
        ({"max_tokens": 4, "min_tokens": 4}, ""),
        ({"max_tokens": 4, "min_tokens": 5}, LEAST),
    ],
)
def test_a_body_is_looked_at_again_when_it_is_tokenized(fields, line):
    generations = Generations(Thrice(), Drawn(), 10, 1000)
    body = Completion(**{"prompt": "ab", **fields})
    if line:
        with pytest.raises(Refusal, match=line):
            made_of(generations, body)
        return
    _, made = made_of(generations, body)
    assert (made.prompt_tokens, len(made.choices[0].answer.tokens)) == (6, fields["max_tokens"])


@pytest.mark.parametrize(
    ("window", "most"), [(TEMPLATE * 3 + 5, 5), (TEMPLATE * 3 + 1, 1), (TEMPLATE * 3, None)]
)
def test_a_chat_may_fill_its_context(window, most):
    body = Chat(messages=[Message("user", "")])
    generations = Generations(Thrice(), Drawn(), window, 1000)
    if most is None:
        with pytest.raises(Refusal, match="maximum context length"):
            made_of(generations, body)
        return
    assert len(made_of(generations, body)[1].choices[0].answer.tokens) == most


@examples(150)
@given(
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(0, 6),
)
def test_an_answer_ends_before_the_first_stop_that_ends_behind_its_least_tokens(texts, stops, min_tokens):
    found = _stopped([*range(len(texts))], texts, stops, min_tokens)
    whole, free = "".join(texts), len("".join(texts[:min_tokens]))
    ends = [end for end in range(free + 1, len(whole) + 1) if whole[:end].endswith(tuple(stops))]
    if not ends:
        assert (found.tokens, found.texts, found.finish_reason) == ([*range(len(texts))], texts, "length")
        return
    cut = ends[0] - max(len(stop) for stop in stops if whole[: ends[0]].endswith(stop))
    count = next(n for n in range(1, len(texts) + 1) if len("".join(texts[:n])) >= ends[0])
    assert ("".join(found.texts), len(found.texts)) == (whole[:cut], count)
    assert (found.tokens, found.finish_reason) == ([*range(count)], "stop")


@examples(80)
@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9), st.integers(0, 99),
       st.integers(0, 99), st.none() | st.sampled_from(["stop", "length"]), st.text(max_size=5), st.sampled_from(["", "r7"]))  # fmt: skip
def test_chunks_and_whole_answers_are_openais(
    chat, each, include, cached, choice, out, found, finish, text, name
):
    options = StreamOptions(include_usage=include, continuous_usage_stats=each)
    wording = Wording(Generation(chat, [], 40, True, options, []), "m", name, 5, cached)
    kind = "chatcmpl" if chat else "cmpl"
    assert re.fullmatch(f"{kind}-{name}" if name else f"{kind}-[0-9a-f]{{32}}", wording.id)

    def usage(tokens, known):
        counts = {"prompt_tokens": 40, "total_tokens": 40 + tokens, "completion_tokens": tokens}
        return counts | (
            {"prompt_tokens_details": {"cached_tokens": known}} if cached and known is not None else {}
        )

    def event(said, reason, tokens):
        part = {"delta": said} if chat else said
        choices = [{"index": choice, **part, "logprobs": None, "finish_reason": reason}] if said else []
        head = {
            "id": wording.id,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 5,
            "model": "m",
        }
        return head | {"choices": choices} | ({"usage": usage(tokens, None)} if each else {})

    def read(data):
        assert data.endswith(b"\n\n")
        return json.loads(data.removeprefix(b"data: "))

    if chat:
        assert read(wording.opening(choice)) == event({"role": "assistant", "content": ""}, None, 0)
    else:
        assert wording.opening(choice) == b""
    said = {"content" if chat else "text": text}
    assert read(wording.chunk(choice, text, finish, out)) == event(said, finish, out)
    frame = wording.plain(choice)
    assert (frame is None) == each
    if frame is not None:
        assert frame[0] + encoded(text) + frame[1] == wording.chunk(choice, text, None, out)
    *last, end = wording.last(out, found).split(b"data: ")[1:]
    assert b"data: " + end == DONE
    assert [json.loads(own) for own in last] == (
        [event({}, None, 0) | {"usage": usage(out, found)}] if include else []
    )
    whole = wording.whole([(text, "stop"), ("b", "abort")], out, found)
    assert whole["object"] == ("chat.completion" if chat else "text_completion")
    assert whole["usage"] == usage(out, found)
    assert [
        (c["index"], c["message"] if chat else c["text"], c["finish_reason"]) for c in whole["choices"]
    ] == [
        (n, {"role": "assistant", "content": own} if chat else own, reason)
        for n, (own, reason) in enumerate([(text, "stop"), ("b", "abort")])
    ]


# --- who may do what ---------------------------------------------------------------------------------------


async def asked(
    application, path, body=b"", method="POST", client="127.0.0.1", pieces=1, fails=False, **headers
):
    """Return the status and the JSON of an answer; the client stays until it has come, or its connection fails."""
    size, sent = -(-len(body) // pieces) or 1, []
    queue = [body[at : at + size] for at in range(0, len(body), size)] or [b""]

    async def receive():
        if not queue:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": queue.pop(0), "more_body": bool(queue)}

    async def send(message):
        if fails:
            raise ConnectionError
        sent.append(message)

    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": lines, "query_string": b"",
             "scheme": "http", "client": (client, 9), "server": ("127.0.0.1", 80)}  # fmt: skip
    await application(scope, receive, send)
    whole = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], whole


def served_by(fleet, *, body_bytes=1000, requests=3, key="", shutdown=None):
    tokenizer = ByteTokenizer()
    generations = Generations(tokenizer, Drawn(), 4096)
    served = app.Served(("m",), fleet, generations, lambda: b"", True, None, shutdown)
    return app.application(served, app.Limits(body_bytes, requests, key))


def idle():
    clock = SimpleNamespace(now_ns=lambda: 0, wall_ns=lambda: 0)
    return SimpleNamespace(broken=None, reset=lambda: True, clock=clock)


def test_every_route_but_health_needs_the_key():
    application = served_by(idle(), key="secret", shutdown=lambda: None)
    assert len(application.routes) == 12
    for route in application.routes:
        method = min(route.methods - {"HEAD"})
        for sent in (
            {},
            *({"authorization": f"Bearer {word}"} for word in ("", "secre", "secrets", "Secret")),
        ):
            status, _ = asyncio.run(asked(application, route.path, method=method, **sent))
            assert status == (200 if route.path in ("/health", "/ping") else 401), (route.path, sent)
    allowed = {"authorization": "Bearer secret"}
    assert asyncio.run(asked(application, "/version", method="GET", **allowed))[0] == 200
    broken = idle()
    broken.broken = RuntimeError()
    assert asyncio.run(asked(served_by(broken, key="secret"), "/health", method="GET"))[0] == 503
    far = {"client": "10.0.0.9", "host": "elsewhere", "origin": "http://elsewhere"}
    assert asyncio.run(asked(application, "/reset_prefix_cache", **far, **allowed))[0] == 200


@pytest.mark.parametrize(
    ("client", "host", "origin", "status"),
    [
        ("127.0.0.1", "127.0.0.1:80", None, 200),
        ("127.0.0.1", "localhost:80", "http://localhost:80", 200),
        ("::1", "[::1]:80", "http://[::1]:80", 200),
        ("127.0.0.1", "localhost:80", "http://localhost:81", 403),
        ("127.0.0.1", "localhost:80", "https://localhost:80", 403),
        ("127.0.0.1", "elsewhere", "http://elsewhere", 403),
        ("127.0.0.1", "elsewhere", None, 403),
        ("10.0.0.9", "localhost:80", None, 403),
    ],
)
def test_without_a_key_this_machine_alone_changes_state(client, host, origin, status):
    done = []
    application = served_by(idle(), shutdown=lambda: done.append(1))
    given = {"client": client, "host": host, **({"origin": origin} if origin else {})}
    for path in ("/reset_prefix_cache", "/shutdown"):
        assert asyncio.run(asked(application, path, **given))[0] == status
    assert len(done) == (status == 200)
    assert asyncio.run(asked(application, "/version", method="GET", **given))[0] == 200


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("stated", [True, False])
def test_a_body_may_be_as_long_as_the_limit(stated, pieces):
    application = served_by(idle(), body_bytes=40)
    for size, status in ((40, 200), (41, 413)):
        body = b'{"prompt": "a"}'.ljust(size)
        headers = {"content_length": str(size)} if stated else {}
        assert asyncio.run(asked(application, "/tokenize", body, pieces=pieces, **headers))[0] == status


def test_as_many_answers_are_served_at_a_time_as_the_limit_says():
    async def go():
        fleet = fleet_of([])
        fleet.start()
        application = served_by(fleet)

        async def load():
            return json.loads((await asked(application, "/load", method="GET"))[1])["server_load"]

        def ask(n):
            body = json.dumps({"prompt": "a", "n": n, "max_tokens": 3}).encode()
            return asyncio.create_task(asked(application, "/v1/completions", body))

        two, more, one = ask(2), ask(2), ask(1)
        await turns()
        assert (await more)[0] == 429
        assert await load() == 3
        wait(fleet, 10**10)
        await turns()
        assert [(await task)[0] for task in (two, one)] == [200, 200]
        usage = json.loads((await two)[1])["usage"]
        assert usage == {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7,
                         "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip
        assert await load() == 0
        last = ask(1)
        await turns()
        fleet.abort(*fleet.open.values())
        wait(fleet, 10**10)
        assert json.loads((await last)[1])["choices"][0]["finish_reason"] == "abort"

    asyncio.run(go())


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"prompt": "abcdef"}, [97, 98, 99, 100, 101, 102]),
        ({"prompt": "ab", "return_token_strs": True, "model": "also"}, [97, 98]),
        ({"prompt": "abcdefg"}, "more than 6 tokens"),
        ({"prompt": ""}, []),
        ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "one of prompt and messages"),
        ({}, "one of prompt and messages"),
        ({"prompt": "a", "model": "n" * 201}, f"`{'n' * 200}` does not exist"),
        ({"messages": [{"role": "user", "content": "a"}]}, "more than 6 tokens"),
    ],
)
def test_a_text_is_tokenized_up_to_the_most_tokens(body, answer):
    generations = Generations(ByteTokenizer(), Drawn(), 4096, 6)
    served = app.Served(("m", "also"), idle(), generations, lambda: b"", True, SimpleNamespace(), None)
    own = app.application(served, app.Limits(1000, 1, ""))
    status, found = asyncio.run(asked(own, "/tokenize", json.dumps(body).encode()))
    if isinstance(answer, str):
        assert answer in json.loads(found)["error"]["message"]
        assert status == (404 if "model" in body else 400)
        return
    strings = [chr(token) for token in answer] if body.get("return_token_strs") else None
    assert json.loads(found) == {
        "count": len(answer),
        "max_model_len": 4096,
        "tokens": answer,
        "token_strs": strings,
    }


def test_an_answer_has_its_name_and_its_date_and_is_kept_unless_it_failed():
    async def go():
        fleet, kept, may_go = fleet_of([]), [], asyncio.Event()
        fleet.start()

        class Waits(Generations):
            async def of(self, *given):
                await may_go.wait()
                return await super().of(*given)

        texts = SimpleNamespace(add=kept.append)
        generations = Waits(ByteTokenizer(), Drawn(), 4096)
        served = app.Served(("m", "also"), fleet, generations, lambda: b"", True, texts, None)
        own = app.application(served, app.Limits(1000, 4, ""))

        def ask(n, tokens, **more):
            body = json.dumps({"prompt": "a", "n": n, "max_tokens": tokens, "model": "also"}).encode()
            return asyncio.create_task(asked(own, "/v1/completions", body, **more))

        async def load():
            return json.loads((await asked(own, "/load", method="GET"))[1])["server_load"]

        long, more, last = ask(1, 900), ask(3, 900), ask(1, 900)
        await turns()
        assert await load() == 0
        may_go.set()  # all three have come before one is tokenized
        await turns()
        assert (last.done() and (await last)[0], await load()) == (429, 4)
        fleet.abort(*(ticket for number, ticket in fleet.open.items() if number == 1))
        wait(fleet, 2 * 10**9)
        more.cancel()
        await turns()
        assert await load() == 1
        wait(fleet, 10**9)
        date = int(fleet.clock.date_s(fleet.ran_to_ns))
        named, failing = ask(2, 3, x_request_id="x" * 130), ask(1, 3, fails=True)
        await turns()
        assert (await load(), date > fleet.clock.started_s) == (4, True)
        wait(fleet, 10**9)
        await turns()
        with pytest.raises(ConnectionError):
            await failing
        answer = json.loads((await named)[1])
        assert (answer["id"], answer["created"], answer["model"]) == ("cmpl-" + "x" * 128, date, "m")
        assert (await load(), [record.said for record in kept]) == (1, [["x"] * 3])
        listed = json.loads((await asked(own, "/v1/models", method="GET"))[1])["data"]
        assert [(row["id"], row["root"], row["max_model_len"]) for row in listed] == [
            (n, n, 4096) for n in ("m", "also")
        ]
        assert {row["created"] for row in listed} == {int(fleet.clock.started_s)}
        fleet.abort(*fleet.open.values())
        wait(fleet, 10**9)
        await turns()
        assert (await long)[0] == 200
        assert await load() == 0

    asyncio.run(go())


@pytest.mark.parametrize(("port", "ports"), [(8000, [8000, 8001, 8002]), (0, [0, 0, 0])])
def test_machines_have_ports_in_order_or_free_ones(port, ports):
    assert Ports("", port, 3, True).each() == list(zip(ports, range(3), strict=True))
    assert Ports("", port, 3, False).each() == [(port, None)]


# --- how long a connection may take ------------------------------------------------------------------------


class Loop:
    """Timers on a time that a test sets, and requests that no server takes."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def call_later(self, seconds, call):
        timer = SimpleNamespace(at=self.now + seconds, call=call, on=True)
        timer.cancel = lambda: setattr(timer, "on", False)
        self.timers.append(timer)
        return timer

    def create_task(self, coroutine, **_):
        coroutine.close()
        return Mock()

    def run_to(self, at):
        while due := [t for t in self.timers if t.on and t.at <= at]:
            first = min(due, key=lambda t: t.at)
            self.now, first.on = first.at, False
            first.call()
        self.now = at


class Transport:
    """Bytes written, and the time at which it was closed."""

    def __init__(self, loop):
        self.loop, self.written, self.closed_at = loop, b"", None

    def close(self):
        self.closed_at = self.loop.now if self.closed_at is None else self.closed_at

    def is_closing(self):
        return self.closed_at is not None

    def write(self, data):
        self.written += data

    def get_extra_info(self, name, default=None):
        return default

    def pause_reading(self):
        pass

    resume_reading = pause_reading


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
SERVED = None  # the answer to the request has been written


@pytest.mark.parametrize(
    ("sent", "closed_at", "status"),
    [
        ([], 5, None),
        ([(4, HEAD[:9])], 5, 408),
        ([(1, HEAD[:9]), (4, HEAD[9:20])], 5, 408),
        ([(4, HEAD)], 64, 408),
        ([(4, HEAD + b"ab"), (40, b"c")], 64, 408),
        ([(4, HEAD + b"abcd")], None, None),
        ([(4, HEAD), (60, b"abcd"), (61, SERVED)], 61 + 75, None),
        ([(0, HEAD + b"abcd"), (1, SERVED), (30, HEAD[:5])], 35, 408),
        ([(0, HEAD + b"abcd"), (1, SERVED), (30, HEAD), (31, b"abcd"), (32, SERVED)], 32 + 75, None),
        ([(0, HEAD + b"abcd"), (1, SERVED), (30, HEAD), (31, b"abc")], 90, 408),
        ([(1, HEAD[:17] + b"a: b\r\n" * 8000), (2, b"a: b\r\n" * 3000)], 2, 431),
        ([(1, HEAD[:17] + b"a: b\r\n" * 8000), (2, b"a: b\r\n" * 2000)], 5, 408),
        ([(1, HEAD[:-2] + b"a: b\r\n" * 8000 + b"\r\n"), (2, b"abcd")], None, None),
        ([(1, b"hello\r\n\r\n")], 1, 400),
    ],
)
def test_a_head_has_five_seconds_and_a_body_a_minute(sent, closed_at, status):
    loop = Loop()
    config = uvicorn.Config(
        lambda: None, http=protocol.Connection, timeout_keep_alive=75, log_level="critical"
    )
    state, transport = ServerState(), Transport(loop)
    connection = protocol.Connection(config, state, {}, loop)
    connection.connection_made(transport)
    assert state.connections == {connection}
    for at, data in sent:
        loop.run_to(at)
        if data is SERVED:
            connection.cycle.response_complete = True
            connection.on_response_complete()
        else:
            connection.data_received(data)
    loop.run_to(1000)
    assert transport.closed_at == closed_at
    assert transport.written[:13] == (b"HTTP/1.1 %d " % status if status else b"")
    connection.connection_lost(None)
    assert state.connections == set()
    assert not any(timer.on for timer in loop.timers)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", "AF_INET"), ("localhost", "AF_INET"), ("::1", "AF_INET6")]
)
@pytest.mark.parametrize("taken", [False, True])
def test_a_server_listens_or_says_why_not(monkeypatch, host, family, taken):
    made = Mock()
    made.return_value.bind.side_effect = OSError(98, "Address already in use") if taken else None
    monkeypatch.setattr(server.socket, "socket", made)
    with (
        pytest.raises(UsageError, match=r"cannot listen there.*Address already in use")
        if taken
        else nullcontext()
    ):
        assert server._listening(host, 80) is made.return_value
    made.assert_called_once_with(getattr(server.socket, family), server.socket.SOCK_STREAM)
    made.return_value.bind.assert_called_once_with((host, 80))
    assert made.return_value.listen.called is not taken
    assert made.return_value.close.called is taken


@pytest.mark.parametrize(
    ("stated", "held", "window"),
    [
        ([100, None], [900, 900], 100),
        ([None, None], [700, 333], 333),
        ([50, 40], [41, 60], 40),
        ([50, 42], [41, 60], 41),
        ([None, None], [1 << 30, 1 << 30], 1 << 20),
        ([None, 99], [7, 7], 16),
    ],
)
def test_a_window_fits_every_machine(stated, held, window):
    """The longest that all may have and hold, at least a block."""
    replicas = [
        SimpleNamespace(
            settings=SimpleNamespace(max_model_len=most),
            cache=SimpleNamespace(block_size_tokens=16),
            can_ever_hold=lambda tokens, holds=holds: tokens <= holds,
        )
        for most, holds in zip(stated, held, strict=True)
    ]
    assert serving._window(SimpleNamespace(simulation=SimpleNamespace(replicas=replicas))) == window
