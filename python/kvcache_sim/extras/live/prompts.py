"""Block ids of token sequences: a number for each distinct prefix of blocks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

_ROOT = b"kvsim"


@dataclass(frozen=True, slots=True)
class Block:
    """A known block: its number, its parent's number (-1: none), its tokens, and a first block's salt."""

    number: int
    parent: int
    tokens: tuple[int, ...]
    salt: str = ""


class BlockNumbers:
    """Numbers blocks of tokens in order of first appearance; a forgotten block gets a new number.

    A block stands for its tokens and all tokens before, so equal numbers mean equal prefixes. ``keep_tokens``
    keeps each block's tokens for KV events. Cost: one hash per block; about 150 bytes per known block.
    """

    def __init__(self, block_size: int, keep_tokens: bool) -> None:
        self.block_size = block_size
        #: Count of assigned numbers.
        self.given = 0
        self._numbers: dict[bytes, int] = {}
        self._blocks: dict[int, Block] | None = {} if keep_tokens else None

    def number(self, tokens: Sequence[int], salt: str = "") -> list[int]:
        """Return the number of each full block of a sequence; no number is shared between two salts."""
        size, before = self.block_size, -1
        parent = blake2b(_ROOT + salt.encode(), digest_size=16).digest()
        packed = array("I", tokens).tobytes()
        numbers: list[int] = []
        for start in range(0, len(tokens) // size * size, size):
            parent = blake2b(packed[4 * start : 4 * (start + size)], digest_size=16, key=parent).digest()
            number = self._numbers.get(parent)
            if number is None:
                number = self._numbers[parent] = self.given
                self.given += 1
                if self._blocks is not None:
                    block_tokens = tuple(tokens[start : start + size])
                    self._blocks[number] = Block(number, before, block_tokens, "" if start else salt)
            elif self._blocks is not None and self._blocks[number].parent != before:
                # The block before was forgotten meanwhile and has a new number.
                self._blocks[number] = replace(self._blocks[number], parent=before)
            numbers.append(number)
            before = number
        return numbers

    def block(self, number: int) -> Block | None:
        """Return a known block, None if it is forgotten or its tokens are not kept."""
        return None if self._blocks is None else self._blocks.get(number)

    def keep(self, numbers: frozenset[int]) -> None:
        """Forget all blocks except these."""
        self._numbers = {key: number for key, number in self._numbers.items() if number in numbers}
        if self._blocks is not None:
            self._blocks = {number: self._blocks[number] for number in numbers if number in self._blocks}

    def __len__(self) -> int:
        """Return the number of known blocks."""
        return len(self._numbers)
