"""Text to chained block ids: a prompt's tokens (from a local tokenizer, or bytes) hashed block by block."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.workload.prompts.body import Seen, seen_lines
from kvcache_sim.workload.prompts.render import Said, opaque_tokens, pieces
from kvcache_sim.workload.prompts.segments import Chat
from kvcache_sim.workload.prompts.template import renderer_of
from kvcache_sim.workload.readers.agent_rows import AgentRequest, RequestRows
from kvcache_sim.workload.readers.findings import Finding
from kvcache_sim.workload.trace import OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns
    from kvcache_sim.workload.readers.settings import ReadSettings


def encoder(settings: ReadSettings) -> Callable[[str], bytes]:
    """Return a function from a text to its tokens, each ``token_bytes`` long."""
    if settings.tokenizer is None:
        return lambda text: text.encode("utf-8", "surrogatepass")
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UsageError(
            "the package tokenizers is not installed", where="trace.tokenizer", hint="pip install tokenizers"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(settings.tokenizer)
    except Exception as error:
        raise UsageError("not a tokenizer", where=settings.tokenizer, got=str(error)[:80]) from None
    return lambda text: array("I", tokenizer.encode(text, add_special_tokens=False).ids).tobytes()


def token_bytes(settings: ReadSettings) -> int:
    """Return the number of encoded bytes per token."""
    return settings.token_bytes if settings.tokenizer is None else array("I").itemsize


def lengths_said(settings: ReadSettings, block_size: int) -> str:
    """Return a sentence on the conversion of a trace's texts to tokens and ids."""
    if settings.tokenizer is not None:
        return f"texts are hashed here: tokens of {settings.tokenizer}, {block_size} a block"
    hint = "" if settings.bytes_per_token else ": trace.tokenizer (a tokenizer.json) counts them"
    return f"texts are hashed here in blocks of {block_size} tokens, {settings.token_bytes_said}{hint}"


class TextRows(RequestRows):
    """Requests with prompts as texts, collected into the columns of a trace."""

    def __init__(self, settings: ReadSettings, block_size: int) -> None:
        super().__init__(settings.block_size or block_size)
        self.encode = encoder(settings)
        self.per_token = token_bytes(settings)
        tokenizer = settings.tokenizer
        self.renderer = renderer_of(None if tokenizer is None else Path(tokenizer))
        self._is_exact = tokenizer is not None or settings.bytes_per_token is not None
        #: True if a chat was rendered, so that the method is worth a note.
        self.met_chat = False
        #: Number of sessions with each name.
        self._named: dict[str, int] = {}

    def name_session(self, name: str) -> None:
        """Name the session of the requests added last; a second session of the same name is ``name #2``."""
        unique = name
        while unique in self._named:
            self._named[name] += 1
            unique = f"{name} #{self._named[name]}"
        self._named[unique] = 1
        self.session_names.append(unique)

    def tokens(self, encoded: bytes) -> int:
        """Return the number of tokens of an encoded text, including a partial last token."""
        return -(-len(encoded) // self.per_token)

    def encoded(self, given: Said) -> bytes:
        """Return a prompt or an answer as rendered by ``trace import``; bytes of a segment without a text.

        Such a segment, and token ids, have as many bytes as their tokens.
        """
        self.met_chat = self.met_chat or isinstance(given, Chat)
        if isinstance(given, list):
            return self._packed(given)
        return b"".join(
            self._packed(opaque_tokens(piece.segments[0])) if piece.text is None else self.encode(piece.text)
            for piece in pieces(given, self.renderer.render, self._is_exact)
        )

    def said(self, settings: ReadSettings, seen: Seen) -> list[Finding]:
        """Return the notes on the texts: their tokens, their rendering, and what is not rendered."""
        said = [lengths_said(settings, self.block_size)]
        said += [f"chats are rendered as {self.renderer.name}"] if self.met_chat else []
        return [Finding("text", len(self.inputs), 0, text) for text in [*said, *seen_lines(seen)]]

    def _packed(self, tokens: list[int]) -> bytes:
        size = self.per_token
        return b"".join((token.to_bytes(4, "little") * size)[:size] for token in tokens)

    def add(self, history: bytes, output_tokens: int, session: int, turn: int) -> None:
        """Add a request with the encoded prompt ``history``; later turns arrive right after the answer."""
        size, parent, hashes = self.block_size * self.per_token, b"", []
        for start in range(0, len(history) - size + 1, size):
            parent = hashlib.blake2b(parent + history[start : start + size], digest_size=8).digest()
            hashes.append(parent)
        inputs, after_ns = max(1, self.tokens(history)), 0 if turn else OPEN_LOOP
        self.append(AgentRequest(0, inputs, output_tokens, hashes, None, after_ns), session, turn)

    def columns(self, findings: list[Finding]) -> RawColumns:
        """Return the columns; only full blocks have ids, their hashes."""
        names = b"".join(block for block in self.dense if isinstance(block, bytes))
        columns = self.gathered(np.frombuffer(names, ">u8").astype(np.uint64))
        columns["findings"] = [(note.kind, note.count, note.line, note.text) for note in findings]
        return columns
