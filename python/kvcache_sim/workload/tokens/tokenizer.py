"""Token ids to text: what a prompt generator asks of a tokenizer, and one that needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TextTokenizer(Protocol):
    """Anything that turns token ids into text, such as a tokenizer of a published model."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""


class Tokenizer:
    """The tokenizer without a model: a token id is written as its decimal digits, parted by spaces."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the ids as words."""
        return " ".join(map(str, token_ids))

    def encode(self, text: str) -> list[int]:
        """Return the ids of words that `decode` wrote; ValueError for other words."""
        return [int(word) for word in text.split()]
