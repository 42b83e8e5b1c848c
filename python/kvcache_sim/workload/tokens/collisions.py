"""Collisions: blocks of different ids with the same content, and the mode without them.

A window is determined by its start, so about m²/2N pairs collide among m ids and a corpus of N tokens. A
cache that hashes tokens would then find reuse that the trace does not have. In the collision-free content
each block begins with its id, encoded in tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.workload.tokens.corpus import Corpus, PromptConfig


class IdCode:
    """The token code of an id: digits, low first, then a separator that is no digit.

    No code is a prefix of another, so blocks that hold their whole code differ. Digits and separator are
    tokens of the corpus. Raises UsageError for a corpus of fewer than 3 distinct tokens.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._alphabet = corpus.alphabet()
        self._mark = (self._alphabet if isinstance(self._alphabet, int) else len(self._alphabet)) - 1
        if self._mark < 2:
            raise UsageError(
                "too few distinct tokens to write ids in",
                where="corpus",
                got=str(self._mark + 1),
                expected="at least 3",
            )

    def tokens(self, name: str) -> NDArray[np.uint32]:
        """Return the code of an id's text (`rng.hash_id_text`)."""
        number, digits = _number(name), []
        while number:
            number, digit = divmod(number, self._mark)
            digits.append(digit)
        positions = np.array([*digits, self._mark], np.int64)
        return (positions if isinstance(self._alphabet, int) else self._alphabet[positions]).astype(np.uint32)

    def check(self, names: Iterable[str], sizes: Iterable[int], separator: int | None) -> None:
        """Raise UsageError if two blocks of one size are too short to distinguish their ids."""
        seen: dict[bytes, str] = {}
        for name, size in zip(names, sizes, strict=True):
            code_size = size - (separator is not None)
            code = self.tokens(name)
            if len(code) <= code_size:
                continue
            other = seen.setdefault(code[:code_size].tobytes(), name)
            if other != name:
                raise UsageError(
                    f"blocks of {size} tokens are too short to distinguish ids {other} and {name}",
                    where="content", hint="give a corpus of more distinct tokens, or content parity",
                )  # fmt: skip


def _number(name: str) -> int:
    """Return a number from 0 on for an id's text, unique by interleaving three ranges of numbers."""
    digits = name.removeprefix("-")
    if digits.isdecimal() and digits.isascii() and str(int(name)) == name:
        number = int(name)
        return 3 * number if number >= 0 else 3 * (-number - 1) + 1
    return 3 * int.from_bytes(b"\1" + name.encode()) + 2


def shared_blocks(starts: NDArray[np.uint32], sizes: NDArray[np.int64], config: PromptConfig) -> int:
    """Return the number of blocks, given by start and tokens, with exactly the content of another block.

    Under ``parity`` only; the collision-free content has none. Cost: a sort for a counting corpus; for a real
    one, in which different windows may be equal, a hash over each different window.
    """
    if config.content != "parity":
        return 0
    windows = sizes - (config.separator is not None)
    keys = np.stack([windows, np.where(windows == 0, 0, starts)])
    distinct, counts = np.unique(keys, axis=1, return_counts=True)
    if not config.source.is_counting:
        merged: dict[bytes, int] = {}
        for (length, start), count in zip(distinct.T.tolist(), counts.tolist(), strict=True):
            window = config.source.window(start, length)
            key = hashlib.blake2b(window.tobytes(), digest_size=16).digest()
            merged[key] = merged.get(key, 0) + count
        counts = np.array(list(merged.values()), np.int64)
    return int(counts[counts > 1].sum())
