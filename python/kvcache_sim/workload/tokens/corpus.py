"""The corpus: the tokens that blocks are cut from, and the settings of prompt assembly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.base.rng import DOCUMENT_SCOPE

MAX_TOKEN = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Corpus:
    """A list of token ids (uint32), ``tokens``; an integer N stands for 0, 1 … N−1 without storing them.

    Raises UsageError for an empty corpus or one beyond 2³²−1 tokens.
    """

    tokens: int | NDArray[np.uint32]

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_TOKEN:
            raise UsageError(
                "not a corpus size", where="corpus", got=str(self.size), expected=f"1 to {MAX_TOKEN} tokens"
            )

    @property
    def size(self) -> int:
        """The number of tokens in the corpus."""
        return self.tokens if isinstance(self.tokens, int) else len(self.tokens)

    @property
    def is_counting(self) -> bool:
        """True if the tokens are 0, 1 … N−1, so that windows from different starts differ."""
        return isinstance(self.tokens, int)

    def window(self, start: int, length: int) -> NDArray[np.uint32]:
        """Return ``length`` tokens from ``start``, wrapping around at the end once.

        Raises UsageError if ``length`` exceeds the corpus.
        """
        if length > self.size:
            raise UsageError(
                "a window longer than the corpus", where="corpus", got=f"{length} tokens",
                expected=f"at most {self.size}", hint="give a larger corpus",
            )  # fmt: skip
        positions = (np.arange(length, dtype=np.int64) + start) % self.size
        return positions.astype(np.uint32) if isinstance(self.tokens, int) else self.tokens[positions]

    def alphabet(self) -> int | NDArray[np.uint32]:
        """Return the distinct tokens, ascending; an integer N stands for 0, 1 … N−1."""
        return self.tokens if isinstance(self.tokens, int) else np.unique(self.tokens)

    @classmethod
    def read(cls, path: Path) -> Corpus:
        """Return the corpus of a file: a one-dimensional integer ``.npy``, or integers as text.

        Raises InputOutputError if the file cannot be read, UsageError if its content is invalid.
        """
        try:
            values = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _integers(path)
        except OSError as error:
            raise InputOutputError(
                "cannot read the corpus", where=str(path), got=str(error.strerror)
            ) from None
        except (ValueError, EOFError) as error:
            raise UsageError("not a corpus", where=str(path), got=str(error), expected="token ids") from None
        return cls.listed(values, str(path))

    @classmethod
    def listed(cls, values: ArrayLike, where: str = "corpus") -> Corpus:
        """Return the corpus of a list of token ids; UsageError for an invalid token id."""
        ids = np.asarray(values)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise UsageError(
                "not a corpus",
                where=where,
                got=f"{ids.ndim}-dimensional {ids.dtype}",
                expected="a one-dimensional array of integers",
            )
        if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) <= MAX_TOKEN):
            raise UsageError("a token id out of range", where=where, expected=f"0 to {MAX_TOKEN}")
        return cls(np.ascontiguousarray(ids, dtype=np.uint32))


def _integers(path: Path) -> NDArray[np.int64]:
    return np.array([int(word) for word in path.read_text(encoding="utf-8").split()], dtype=np.int64)


#: content → description of a block's tokens.
CONTENTS = {
    "parity": "a window of the corpus, as AIPerf draws it; ids with the same start share their content",
    "collision-free": "the id itself, written in tokens, then the window; no two ids share their content",
}


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """The settings of prompt assembly; raises UsageError for invalid settings.

    ``corpus`` is a `Corpus`, a list of token ids, or N for the ids 0 … N−1. ``block_size`` is in tokens per
    id (512: Mooncake's). ``trace_id`` None follows seed 002's formula, a text AIPerf's (see
    `rng.HashIdRandomGenerator`). ``separator`` is a token id at the start of every block, whose length is
    unchanged. |``content`` is a key of `CONTENTS`.
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
        """The corpus, in any of its input forms."""
        assert isinstance(self.corpus, Corpus)
        return self.corpus

    @property
    def scope(self) -> str:
        """The middle part of the text hashed for an id."""
        return DOCUMENT_SCOPE if self.trace_id is None else self.trace_id


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= MAX_TOKEN:
        raise UsageError("not a valid value", where=name, got=repr(value), expected=f"an integer ≥ {least}")
