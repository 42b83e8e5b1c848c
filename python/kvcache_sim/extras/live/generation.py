"""A checked generation request: prompts in tokens, drawn answers, and the client's options."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kvcache_sim.extras.live.answers import Answer, Answers
from kvcache_sim.extras.live.fleet import Prompt
from kvcache_sim.extras.live.parsing import Chat, Completion, StreamOptions
from kvcache_sim.extras.live.refusals import Refusal
from kvcache_sim.extras.live.rendering import Rendered, least_tokens, rendered, rendered_body, tokens_of
from kvcache_sim.extras.live.tokenizer import Tokenizer
from kvcache_sim.workload.prompts.body import Seen
from kvcache_sim.workload.prompts.render import Piece

#: vLLM's default of ``max_tokens`` for completions; chats may fill the context.
_COMPLETION_TOKENS = 16
_MOST_STOPS = 64
#: Tokens of prompts and answers that one request may ask for, copies of a prompt counted.
MOST_TOKENS = 1 << 21
#: Longest text, in characters, that is tokenized between two events; longer ones leave the loop free.
_SHORT_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a request: its prompt and its text."""

    index: int
    prompt: Prompt
    answer: Answer


@dataclass(frozen=True, slots=True)
class Generation:
    """The answers to generate for one request; ``prompt_tokens`` sums over its prompts."""

    is_chat: bool
    choices: list[Choice]
    prompt_tokens: int
    streams: bool
    options: StreamOptions
    #: The text at the start of an answer, by choice: the prompt if ``echo`` is set.
    echo: list[str]


def _most(body: Chat | Completion) -> int | None:
    """Return the most tokens of an answer; None for the rest of the context."""
    if isinstance(body, Completion):
        return _COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens


async def encoded(prompt: Rendered, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a prompt; other clients are answered while a long one is tokenized."""
    is_long = sum(len(part.text or "") for part in prompt if isinstance(part, Piece)) > _SHORT_TEXT
    return await asyncio.to_thread(tokens_of, prompt, tokenizer) if is_long else tokens_of(prompt, tokenizer)


class Generations:
    """Makes generations of bodies.

    ``max_model_len`` bounds a prompt and its answer together, ``most_tokens`` all of a request.
    """

    def __init__(
        self, tokenizer: Tokenizer, answers: Answers, max_model_len: int, most_tokens: int = MOST_TOKENS
    ) -> None:
        self.tokenizer, self.max_model_len, self.most_tokens = tokenizer, max_model_len, most_tokens
        self._answers = answers
        #: What prompts have that is not rendered.
        self.seen = Seen()

    def prompts_of(self, body: Chat | Completion) -> Sequence[Rendered]:
        """Return the prompts of a body as texts and tokens; Refusal for a mixture, or none."""
        if isinstance(body, Chat):
            return [rendered_body(msgspec.to_builtins(body), self.tokenizer, self.seen)]
        prompt = body.prompt
        if isinstance(prompt, str):
            return [rendered(prompt, self.tokenizer)]
        texts = [rendered(each, self.tokenizer) for each in prompt if isinstance(each, str)]
        token_lists = [each for each in prompt if isinstance(each, list)]
        tokens = [each for each in prompt if isinstance(each, int)]
        if not prompt or len(prompt) not in (len(texts), len(token_lists), len(tokens)):
            raise Refusal(400, "prompt takes a text, texts, tokens, or lists of tokens", "prompt")
        return [tokens] if tokens else token_lists or texts

    def refuse_too_much(self, body: Chat | Completion, prompts: Sequence[Rendered]) -> int:
        """Return the answers that a body asks for of its prompts; Refusal if they are too much work together.

        Looks at counts and lengths alone: nothing is tokenized or drawn.
        """
        sequences = len(prompts) * (body.n or 1)
        least = [least_tokens(one, self.tokenizer) for one in prompts]
        longest, asked = max(least), _most(body)
        most = max(self.max_model_len - longest, 1) if asked is None else asked
        if longest + most > self.max_model_len:
            raise self._too_long(longest, most)
        tokens = (sum(least) + most * len(prompts)) * (body.n or 1)
        if tokens > self.most_tokens:
            refused = f"{sequences} answers and their prompts have up to {tokens} tokens together"
            raise Refusal(400, f"{refused}; at most {self.most_tokens} are taken.", "max_tokens")
        return sequences

    async def of(
        self, body: Chat | Completion, prompts: Sequence[Rendered], machine: int | None
    ) -> Generation:
        """Return the generation of a body, of ``prompts_of`` it; Refusal if it does not fit."""
        tokens = [await encoded(one, self.tokenizer) for one in prompts]
        most = _most(body)
        if most is None:  # a chat may fill the context
            most = max(self.max_model_len - max(map(len, tokens)), 1)
        return self._generation(body, tokens, most, machine)

    def _generation(
        self, body: Chat | Completion, prompts: list[list[int]], most: int, machine: int | None
    ) -> Generation:
        stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
        if len(stops) > _MOST_STOPS or "" in stops:
            raise Refusal(400, f"stop takes 1 to {_MOST_STOPS} texts that are not empty", "stop")
        if most < 1:
            raise Refusal(400, f"max_tokens must be at least 1, got {most}.", "max_tokens")
        if body.min_tokens > most:
            raise Refusal(400, f"min_tokens must be at most max_tokens={most}.", "min_tokens")
        choices: list[Choice] = []
        echo: list[str] = []
        echoes = isinstance(body, Completion) and body.echo
        salt = body.cache_salt or ""
        for prompt in prompts:
            if not prompt:
                raise Refusal(400, "a prompt needs at least one token", "prompt")
            if len(prompt) + most > self.max_model_len:
                raise self._too_long(len(prompt), most)
            said = self.tokenizer.decode(prompt) if echoes else ""
            echo += [said] * (body.n or 1)
            for _ in range(body.n or 1):
                answer = self._answers.draw(most, stops, body.min_tokens)
                handed = Prompt(prompt, answer.tokens, answer.finish_reason, body.priority, salt, machine)
                choices.append(Choice(len(choices), handed, answer))
        return Generation(
            is_chat=isinstance(body, Chat),
            choices=choices,
            prompt_tokens=sum(map(len, prompts)),
            streams=bool(body.stream),
            options=body.stream_options or StreamOptions(),
            echo=echo,
        )

    def _too_long(self, prompt_tokens: int, most: int) -> Refusal:
        window = self.max_model_len
        return Refusal(
            400,
            f"This model's maximum context length is {window} tokens. However, you requested {most} output "
            f"tokens and your prompt contains at least {prompt_tokens} input tokens, for a total of at least "
            f"{prompt_tokens + most} tokens. Please reduce the length of the input prompt or the number of "
            "requested output tokens.",
            "input_tokens",
        )
