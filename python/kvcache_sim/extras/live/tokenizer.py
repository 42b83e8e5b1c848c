"""Texts to tokens: the user's own tokenizer, or one token per byte."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.workload.prompts.template import Renderer, renderer_of

#: Number of texts with cached tokens: a conversation repeats its start with every turn.
_REMEMBERED = 256


class Tokenizer(Protocol):
    """Turns texts into tokens and back."""

    #: Description for people.
    name: str
    #: The rendering of chats: the template in its folder, else the default.
    renderer: Renderer

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...

    def least_tokens(self, text: str) -> int:
        """Return a lower bound of a text's tokens, much faster than ``encode``."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; incomplete characters become replacement characters."""
        ...


class ByteTokenizer:
    """One token per byte of UTF-8: a fallback without a file, with more tokens than a real tokenizer."""

    renderer = renderer_of(None)
    name = "bytes (no tokenizer given: one token a byte, so prompts are about four times as long)"

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text; a lone surrogate is encoded like a character."""
        return list(text.encode("utf-8", "surrogatepass"))

    def least_tokens(self, text: str) -> int:
        """Return the number of its characters, each a byte or more."""
        return len(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of bytes; a token above 255 becomes a replacement character."""
        return bytes(token if token < 256 else 0xFF for token in tokens).decode("utf-8", "replace")


class FileTokenizer:
    """The tokenizer of a ``tokenizer.json``, by the ``tokenizers`` package."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Loaded

        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise UsageError(
                "no tokenizer there", "--tokenizer", str(path), "a tokenizer.json or its directory"
            )
        try:
            self._loaded = Loaded.from_file(str(file))
        except Exception as error:  # the package raises bare Exception
            reason = " ".join(str(error).split())[:200]
            raise InputOutputError("cannot be read as a tokenizer", str(file), reason) from None
        self.name, self.renderer = str(file), renderer_of(file)
        self._longest = max(map(len, self._loaded.get_vocab()), default=1)
        self._encoded = lru_cache(_REMEMBERED)(self._encode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._loaded.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special ones around it."""
        return list(self._encoded(text))

    def least_tokens(self, text: str) -> int:
        """Return a lower bound by the longest token, less characters that normalization may drop."""
        return len(text) // (4 * self._longest)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._loaded.decode(list(tokens), skip_special_tokens=False))


def tokenizer_of(path: Path | None) -> Tokenizer:
    """Return the tokenizer of a file or directory, bytes if None; UsageError if it is missing."""
    return ByteTokenizer() if path is None else FileTokenizer(path)
