"""A checked generation request: prompts in tokens, drawn answers, and the client's options."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.live.answers import Answer, Answers
from kvcache_sim.live.fleet import Prompt
from kvcache_sim.live.parsing import Chat, Completion, StreamOptions, pairs
from kvcache_sim.live.refusals import Refusal
from kvcache_sim.live.tokenizer import Tokenizer
from kvcache_sim.workload.chat_template import chat_prompt

#: vLLM's default of ``max_tokens`` for completions; chats may fill the context.
_COMPLETION_TOKENS = 16
_MOST_STOPS = 64


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


class Generations:
    """Makes generations of bodies; ``max_model_len`` bounds prompt and answer together."""

    def __init__(self, tokenizer: Tokenizer, answers: Answers, max_model_len: int) -> None:
        self.tokenizer, self.max_model_len = tokenizer, max_model_len
        self._answers = answers

    def of_chat(self, body: Chat, machine: int | None) -> Generation:
        """Return the generation of a chat; Refusal if it does not fit."""
        prompt = self._tokens(chat_prompt(pairs(body.messages)))
        asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        most = self.max_model_len - len(prompt) if asked is None else asked
        return self._generation(body, [prompt], max(most, 1) if asked is None else most, machine)

    def of_completion(self, body: Completion, machine: int | None) -> Generation:
        """Return the generation of a completion; Refusal if it does not fit."""
        most = _COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
        return self._generation(body, self._prompts(body.prompt), most, machine)

    def _prompts(self, prompt: str | list[str | int | list[int]]) -> list[list[int]]:
        if isinstance(prompt, str):
            return [self._tokens(prompt)]
        texts = [each for each in prompt if isinstance(each, str)]
        token_lists = [each for each in prompt if isinstance(each, list)]
        tokens = [each for each in prompt if isinstance(each, int)]
        if not prompt or len(prompt) not in (len(texts), len(token_lists), len(tokens)):
            raise Refusal(400, "prompt takes a text, texts, tokens, or lists of tokens", "prompt")
        return [tokens] if tokens else token_lists or [self._tokens(text) for text in texts]

    def _tokens(self, text: str) -> list[int]:
        least = self.tokenizer.least_tokens(text)
        if least > self.max_model_len:
            raise self._too_long(least, 1)
        return self.tokenizer.encode(text)

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
        salt = body.cache_salt or ""
        for prompt in prompts:
            if not prompt:
                raise Refusal(400, "a prompt needs at least one token", "prompt")
            if len(prompt) + most > self.max_model_len:
                raise self._too_long(len(prompt), most)
            for _ in range(body.n or 1):
                answer = self._answers.draw(most, stops, body.min_tokens)
                handed = Prompt(prompt, answer.tokens, answer.finish_reason, body.priority, salt, machine)
                choices.append(Choice(len(choices), handed, answer))
        echoes = isinstance(body, Completion) and body.echo
        return Generation(
            is_chat=isinstance(body, Chat),
            choices=choices,
            prompt_tokens=sum(map(len, prompts)),
            streams=bool(body.stream),
            options=body.stream_options or StreamOptions(),
            echo=[self.tokenizer.decode(c.prompt.tokens) if echoes else "" for c in choices],
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
