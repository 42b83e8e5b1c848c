"""Texts and tokens of a log as lengths and salted block ids."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from kvcache_sim.workload.imports.imported import Imported
from kvcache_sim.workload.imports.salted import salted_ids, salted_names
from kvcache_sim.workload.readers.chained_text import encoder, token_bytes
from kvcache_sim.workload.readers.settings import ReadSettings


@dataclass(frozen=True, slots=True)
class Logged:
    """What a log says of one request: texts or token ids, counts where it tells them, and its serving."""

    arrival_ns: int
    prompt: str | list[int] | None
    answer: str | list[int] | None
    input_tokens: int | None = None
    output_tokens: int | None = None
    session: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


class Naming:
    """Cuts prompts into blocks of ``block_size`` tokens and names each, with all before it, by a keyed hash.

    Texts become tokens by ``tokenizer`` (a tokenizer.json); without, so many bytes count as one (4, an
    estimate). Raises UsageError for a tokenizer that cannot be used.
    """

    def __init__(
        self, block_size: int, salt: bytes, tokenizer: str | None = None, bytes_per_token: int | None = None
    ) -> None:
        settings = ReadSettings(tokenizer=tokenizer, bytes_per_token=bytes_per_token)
        self.block_size, self.salt = block_size, salt
        self.said = "" if tokenizer is not None else settings.token_bytes_said
        self._encode: Callable[[str], bytes] = encoder(settings)
        self._whole, self._bytes = tokenizer is not None, token_bytes(settings)
        #: Whether any text became tokens, so that what it counts by is worth saying.
        self.met_text = False

    def tokens(self, given: str | list[int] | None) -> list[int]:
        """Return the tokens of a text, or those that were given; without a tokenizer, of pieces of bytes."""
        if given is None or isinstance(given, list):
            return given or []
        self.met_text = self.met_text or bool(given)
        encoded = self._encode(given)
        if self._whole:
            return array("I", encoded).tolist()
        size = self._bytes
        return [crc32(encoded[at : at + size]) for at in range(0, len(encoded), size)]

    def _both(self, logged: Logged) -> tuple[list[int], int]:
        """Return the tokens of prompt and answer, and how many are the prompt's.

        Bytes count on from the prompt into the answer, as in the prompt of the next turn.
        """
        prompt = self.tokens(logged.prompt)
        if isinstance(logged.prompt, str) and isinstance(logged.answer, str) and not self._whole:
            return self.tokens(logged.prompt + logged.answer), len(prompt)
        return [*prompt, *self.tokens(logged.answer)], len(prompt)

    def named(self, logged: Logged) -> Imported:
        """Return a request with its ids. Counts that the log tells are believed.

        Where they are other than the tokens of its texts, the answer stays unnamed, since nobody knows where
        in the blocks it begins.
        """
        tokens, prompt = self._both(logged)
        inputs = prompt if logged.input_tokens is None else logged.input_tokens
        outputs = len(tokens) - prompt if logged.output_tokens is None else logged.output_tokens
        own = inputs == prompt and len(tokens) > prompt
        named = tokens[: inputs + outputs] if own else tokens[: min(prompt, inputs)]
        return Imported(
            logged.arrival_ns,
            inputs,
            outputs,
            salted_ids(named, self.block_size, self.salt),
            len(named) if own else 0,
            self.session(logged.session),
            logged.measured,
        )

    def session(self, name: str) -> str:
        """Return what stands in the trace for a session's name."""
        return f"s{salted_names([name], self.salt)[0]:x}" if name else ""
