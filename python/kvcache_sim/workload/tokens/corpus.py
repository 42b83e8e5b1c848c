"""The tokens that blocks are cut from: ids that count up, or a tokenised text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvcache_sim.errors import InputOutputError, UsageError

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
        """How many tokens the corpus holds."""
        return self.tokens if isinstance(self.tokens, int) else len(self.tokens)

    @property
    def is_counting(self) -> bool:
        """Whether the tokens are 0, 1 … N−1, so that windows from different starts differ."""
        return isinstance(self.tokens, int)

    def window(self, start: int, length: int) -> NDArray[np.uint32]:
        """Return ``length`` tokens from ``start``, going on at the beginning once.

        Raises UsageError where ``length`` is beyond the corpus.
        """
        if length > self.size:
            raise UsageError(
                "a window longer than the corpus", where="corpus", got=f"{length} tokens",
                expected=f"at most {self.size}", hint="give a larger corpus",
            )  # fmt: skip
        places = (np.arange(length, dtype=np.int64) + start) % self.size
        return places.astype(np.uint32) if isinstance(self.tokens, int) else self.tokens[places]

    def alphabet(self) -> int | NDArray[np.uint32]:
        """Return the distinct tokens, ascending; an integer N stands for 0, 1 … N−1."""
        return self.tokens if isinstance(self.tokens, int) else np.unique(self.tokens)

    @classmethod
    def read(cls, path: Path) -> Corpus:
        """Return the corpus of a file: a one-dimensional integer ``.npy``, or integers as text.

        Raises InputOutputError where the file cannot be read, UsageError where it holds something else.
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
        """Return the corpus of token ids given one by one; UsageError for what is no token id."""
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
