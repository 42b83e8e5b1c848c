"""Token ids to text: the interface of a tokenizer, and a tokenizer without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TextTokenizer(Protocol):
    """Interface of a converter from token ids to text, such as the tokenizer of a published model."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""


class Tokenizer:
    """The tokenizer without a model: a token id is its decimal digits, separated by spaces."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the ids as words."""
        return " ".join(map(str, token_ids))

    def encode(self, text: str) -> list[int]:
        """Return the ids of words written by `decode`; ValueError for other words."""
        return [int(word) for word in text.split()]
