"""What prompts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.rng import DOCUMENT_SCOPE
from kvcache_sim.workload.tokens.corpus import MAX_TOKEN, Corpus

#: content → what the tokens of a block are.
CONTENTS = {
    "parity": "a window of the corpus, as AIPerf draws it; ids with the same start share their content",
    "collision-free": "the id itself, written in tokens, then the window; no two ids share their content",
}


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """The settings of prompt assembly; raises UsageError for one that cannot be.

    ``corpus`` is a `Corpus`, a list of token ids, or N for the ids 0 … N−1. ``block_size`` is in tokens an id
    (512: Mooncake's). ``trace_id`` None follows seed 002's formula, a text AIPerf's (see
    `rng.HashIdRandomGenerator`). ``separator`` is a token id put first in every block, its length unchanged.
    ``content`` is a key of `CONTENTS`.
    """

    corpus: Corpus | int | Sequence[int] = 1_000_000
    block_size: int = 512
    trace_id: str | None = None
    separator: int | None = None
    content: str = "parity"

    def __post_init__(self) -> None:
        if not isinstance(self.corpus, Corpus):
            given = self.corpus
            made = Corpus(given) if type(given) is int else Corpus.listed(given)
            object.__setattr__(self, "corpus", made)
        _check_integer("block_size", self.block_size, 1)
        if self.separator is not None:
            _check_integer("separator", self.separator, 0)
        if self.content not in CONTENTS:
            raise UsageError(
                "no such content", where="content", got=repr(self.content), expected=" or ".join(CONTENTS)
            )

    @property
    def source(self) -> Corpus:
        """The corpus, whichever way it was given."""
        assert isinstance(self.corpus, Corpus)
        return self.corpus

    @property
    def scope(self) -> str:
        """The middle part of the text hashed for an id."""
        return DOCUMENT_SCOPE if self.trace_id is None else self.trace_id


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= MAX_TOKEN:
        raise UsageError("not a valid value", where=name, got=repr(value), expected=f"an integer ≥ {least}")
