"""Facts that counts have shown, calls that have been replayed, and a call at its request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcache_sim.extras.session.calls import Call, Segment
from kvcache_sim.extras.session.heads import Heads
from kvcache_sim.extras.session.prompts import Prompt, Prompts
from kvcache_sim.model.prices import ModelPrice, Provider

_BYTES_A_TOKEN = 4.0
_WITHOUT_MARKS = ("openai", "deepseek")


@dataclass(slots=True)
class Known:
    """Facts that the counts of calls have shown, by chain, cache or model.

    ``heads`` are the tokens of tools and system by their names, ``lapsed`` what was read of them after a
    lapse that the log does not explain, ``shared`` which conversations have the same ones,
    ``turns`` how often a plain message of the user cost the messages' cache, less how often it did not.
    """

    ttls: dict[str, str] = field(default_factory=dict)
    tails: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    lapsed: dict[str, int] = field(default_factory=dict)
    shared: Heads = field(default_factory=Heads)
    turns: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    grown_bytes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    grown_tokens: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def tokens(self, model: str, segments: Sequence[Segment]) -> int:
        """Return the tokens of blocks: as stated, else by the bytes a token of the model's prompts."""
        size = sum(each.size_bytes for each in segments if each.tokens is None)
        grown = self.grown_tokens[model]
        ratio = self.grown_bytes[model] / grown if grown else _BYTES_A_TOKEN
        return sum(each.tokens or 0 for each in segments) + round(size / ratio)


@dataclass(slots=True)
class Ended:
    """A call that has been replayed; ``carried`` are the tokens that it left in the cache."""

    call: Call
    prompt: Prompt
    total: int
    carried: int

    @property
    def thought(self) -> int:
        """The blocks of thinking in its prompt."""
        return self.prompt.thinking - sum(each.kind == "thinking" for each in self.call.answer)


class Asked(NamedTuple):
    """A call at its request: the rules of its cache, its prompt and total, and the call that it continues."""

    call: Call
    rules: Provider
    price: ModelPrice | None
    prompts: Prompts
    prompt: Prompt
    total: int
    before: Ended | None
    is_stripped: bool

    @property
    def minimum(self) -> int:
        """The shortest prefix that is cached."""
        return self.rules.minimum(self.price)

    @property
    def has_marks(self) -> bool:
        """True if prefixes are written at breakpoints, and writes are billed."""
        return self.rules.policy not in _WITHOUT_MARKS

    @property
    def head(self) -> str:
        """The name of its tools and system."""
        return self.prompts.name(self.prompt.head)

    def found(self, marks: Sequence[tuple[int, str]]) -> tuple[int | None, str]:
        """Return the longest prefix that the cache has, and why it has no longer one."""
        found, _, why = self.prompts.cache.find(self.prompt.tail, [at for at, _ in marks], self.call.start_ns)
        return found, why
