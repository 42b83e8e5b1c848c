"""Bodies of requests: their answers one by one, the work of all of them, and bounds of each."""

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.chatml import chatml
from support.examples import examples

pytest.importorskip("uvicorn")

from kvcache_sim.extras.live.answers import Answers
from kvcache_sim.extras.live.generation import Generations
from kvcache_sim.extras.live.parsing import Completion
from kvcache_sim.extras.live.refusals import Refusal
from kvcache_sim.extras.live.tokenizer import ByteTokenizer
from live_apps import live_app

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": ""}]
TEMPLATE = len(chatml(("user", "")))
COUNT = st.none() | st.integers(0, 26)
SHARED = {"n": st.none() | st.integers(1, 4), "max_tokens": COUNT, "min_tokens": st.integers(0, 12)}
TOKENS = st.lists(st.integers(0, 127), max_size=23)
TEXT = st.text("ab", max_size=23)
PROMPTS = st.lists(TOKENS, min_size=1, max_size=4) | TEXT | st.lists(TEXT, min_size=1, max_size=4)
COMPLETION = st.fixed_dictionaries({"prompt": PROMPTS | TOKENS.filter(bool), "echo": st.booleans(), **SHARED})
CHATS = st.fixed_dictionaries({"messages": st.just(MESSAGES), "max_completion_tokens": COUNT, **SHARED})


def sequences_of(body, window, most_tokens):
    """Return each answer as (prompt, tokens of the answer), written out one by one; None: refused."""
    if "messages" in body:
        prompts = [chatml(("user", ""))]
        most = body["max_completion_tokens"]
        most = body["max_tokens"] if most is None else most
        most = window - len(prompts[0]) if most is None else most
    else:
        is_one = isinstance(body["prompt"], str) or isinstance(body["prompt"][0], int)
        prompts = [body["prompt"]] if is_one else body["prompt"]
        most = 16 if body["max_tokens"] is None else body["max_tokens"]
    encoded = [list(one.encode()) if isinstance(one, str) else one for one in prompts]
    asked = [(prompt, most) for prompt in encoded for _ in range(body["n"] or 1)]
    lengths = [len(prompt) + tokens for prompt, tokens in asked]
    right = max(lengths) <= window and sum(lengths) <= most_tokens and all(encoded)
    return asked if right and 1 <= most >= body["min_tokens"] else None


@examples(25)
@given(st.lists(COMPLETION | CHATS, min_size=1, max_size=8), st.booleans())
@example(
    [
        {
            "prompt": [[1] * 12] * 3,
            "max_tokens": 8,
            "n": 1,
            "min_tokens": 0,
            "echo": False,
        },  # as many tokens as are taken
        {"prompt": [[1] * 12] * 3, "max_tokens": 12, "n": 1, "min_tokens": 12, "echo": True},
        {"prompt": ["ab", "c"], "max_tokens": None, "n": 1, "min_tokens": 0, "echo": True},
    ],
    True,
)
def test_the_work_of_a_body_is_that_of_its_answers_one_by_one(tmp_path_factory, bodies, is_narrow):
    window = 24 if is_narrow else TEMPLATE + 9
    expected = [sequences_of(body, window, 5 * window // 2) for body in bodies]
    run = tmp_path_factory.mktemp("live") / "run"

    async def go() -> None:
        with live_app(run) as app:
            app.bounded(window, 5 * window // 2)
            for body, asked in zip(bodies, expected, strict=True):
                answer = await app.ask(CHAT if "messages" in body else COMPLETIONS, body)
                assert answer.status == (400 if asked is None else 200), answer.json
                if asked is None:
                    continue
                usage, n = answer.json["usage"], body["n"] or 1
                assert usage["prompt_tokens"] == sum(len(prompt) for prompt, _ in asked[::n])
                assert usage["completion_tokens"] == sum(tokens for _, tokens in asked)
                for choice, (prompt, tokens) in zip(answer.json["choices"], asked, strict=True):
                    echo = bytes(prompt).decode() if body.get("echo") else ""
                    text = choice["message"]["content"] if "messages" in body else choice["text"]
                    assert text.startswith(echo)
                    assert len(text) == len(echo) + tokens
            app.end()

    asyncio.run(go())
    rows = [json.loads(line) for line in (run / "arrivals.jsonl").read_text().splitlines()]
    lengths = [(len(prompt), tokens) for asked in expected for prompt, tokens in asked or ()]
    assert [(row["input_length"], row["output_length"]) for row in rows] == lengths


class ThreeACharacter(ByteTokenizer):
    """Three tokens a character, of which only two are known before the text is tokenized."""

    def encode(self, text):
        return [7] * (3 * len(text))

    def least_tokens(self, text):
        return 2 * len(text)


def generations(window, most_tokens):
    return Generations(ThreeACharacter(), Answers(ByteTokenizer(), 0), window, most_tokens)


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"prompt": "abcde", "max_tokens": 14}, 1),
        ({"prompt": "abcde", "max_tokens": 15}, None),
        ({"prompt": [[1], [1] * 10], "max_tokens": 14, "n": 2}, 4),  # 78 tokens
        ({"prompt": [[1, 1], [1] * 10], "max_tokens": 14, "n": 2}, None),
        ({"prompt": ["a", "b", "c"], "max_tokens": 11, "n": 2}, 6),
        ({"prompt": ["a", "b", "c"], "max_tokens": 12, "n": 2}, None),
    ],
)
def test_work_is_counted_before_a_text_is_tokenized(fields, answers):
    """A window of 24 tokens, 78 tokens a body; a character is at least two tokens."""
    body = Completion(**fields)
    made = generations(24, 78)
    if answers is None:
        with pytest.raises(Refusal):
            made.refuse_too_much(body, made.prompts_of(body))
    else:
        assert made.refuse_too_much(body, made.prompts_of(body)) == answers


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 4}, ""),
        ({"max_tokens": 5}, "input_tokens"),
        ({"prompt": [[1, 2], [3] * 6], "max_tokens": 5}, "input_tokens"),
        ({"max_tokens": 4, "stop": ["x"] * 64}, ""),
        ({"max_tokens": 4, "stop": ["x"] * 65}, "stop"),
        ({"max_tokens": 4, "stop": ["x", ""]}, "stop"),
        ({"max_tokens": 4, "stop": ""}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 4, "min_tokens": 4}, ""),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
    ],
)
def test_a_body_is_looked_at_again_when_it_is_tokenized(fields, param):
    """Two characters have six tokens; ten fit."""
    body = Completion(**{"prompt": "ab", **fields})
    one = generations(10, 1000)
    made = one.of(body, one.prompts_of(body), None)
    if param:
        with pytest.raises(Refusal) as refused:
            asyncio.run(made)
        assert refused.value.param == param
    else:
        [choice] = asyncio.run(made).choices
        assert (len(choice.prompt.tokens), len(choice.answer.tokens)) == (6, fields["max_tokens"])


@pytest.mark.parametrize(
    ("overrides", "window"),
    [
        ((), 16_000),
        (("replica.max_model_len=100",), 100),
        (("tiers.gpu.capacity=21 blocks",), 336),
        (("replica.max_model_len=9000", "tiers.gpu.capacity=21 blocks"), 336),
        (("replica.max_model_len=3",), 16),
        (("tiers.gpu.capacity=unbounded",), 131_072),  # of the model
    ],
)
def test_a_window_is_what_every_machine_may_have_and_hold(tmp_path, overrides, window):
    """At least a block; a request that fills it is served."""

    async def go() -> None:
        with live_app(tmp_path / "run", ["cluster.machines=2", *overrides]) as app:
            [model] = (await app.ask("/v1/models", method="GET")).json["data"]
            assert model["max_model_len"] == window
            if 16 < window < 1000:
                for tokens, status in ((window - 90, 200), (window - 89, 400)):
                    body = {"prompt": [1] * 90, "max_tokens": tokens}
                    assert (await app.ask(COMPLETIONS, body)).status == status

    asyncio.run(go())
