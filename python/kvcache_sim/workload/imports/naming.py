"""Texts and tokens of a log as lengths and salted block ids, which reveal only shared prefixes."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.workload.prompts.body import Seen, seen_lines
from kvcache_sim.workload.prompts.render import Piece, Said, opaque_tokens, pieces
from kvcache_sim.workload.prompts.segments import Chat
from kvcache_sim.workload.prompts.template import renderer_of
from kvcache_sim.workload.readers.chained_text import encoder, token_bytes
from kvcache_sim.workload.readers.settings import ReadSettings


def salted_ids(tokens: Sequence[int], block_size: int, salt: bytes) -> list[int]:
    """Return a 63-bit id of each full block and all before it. Cost: a hash per block."""
    packed, parent, ids = array("I", tokens).tobytes(), b"", []
    key = _key(salt)
    for start in range(0, len(tokens) // block_size * block_size, block_size):
        block = packed[4 * start : 4 * (start + block_size)]
        parent = blake2b(parent + block, digest_size=16, key=key).digest()
        ids.append(_id(parent))
    return ids


def salted_names(names: Iterable[str], salt: bytes) -> list[int]:
    """Return a 63-bit id of each name, equal for equal names: an engine's own hashes, sessions."""
    key = _key(salt)
    return [
        _id(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest())
        for name in names
    ]


def salt_of(path: Path | None) -> bytes:
    """Return the salt of a file, or a random salt; InputOutputError if the file cannot be read."""
    if path is None:
        return secrets.token_bytes(32)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputOutputError("cannot be read", str(path), error.strerror or "") from None


def _key(salt: bytes) -> bytes:
    return blake2b(salt, digest_size=32).digest()


def _id(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big") >> 1


class KindTokens(NamedTuple):
    """Tokens of a kind of segment (``SEGMENT_KINDS``) in a row."""

    kind: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Imported:
    """One request: its arrival in ns since the log's own origin, its lengths in tokens and its block ids.

    The ids cover the first ``named_tokens`` tokens of prompt and answer; 0 means the prompt only.
    ``measured`` has the log's latencies and hits (``cached_tokens``, ``ttft_ms``), kept in the row;
    ``segments`` the tokens of the prompt by kind, in order, where the log has chats. ``prompt_tokens`` are
    those of the prompt's own text, before counts take precedence.
    """

    arrival_ns: int
    input_tokens: int
    output_tokens: int
    ids: list[int]
    named_tokens: int = 0
    session: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    segments: Sequence[KindTokens] = ()
    prompt_tokens: int = 0


class Notes:
    """Counts the parts of a log that were left out by reason, with the first line of each; collects notes."""

    def __init__(self) -> None:
        self.left_out: dict[str, tuple[int, int]] = {}
        self.remarks: dict[str, None] = {}
        #: What is not rendered of prompts, or assumed, with its number.
        self.seen: Seen = Seen()

    def leave_out(self, line: int, reason: str) -> None:
        """Count a part of the log that becomes no request."""
        count, first = self.left_out.get(reason, (0, line))
        self.left_out[reason] = (count + 1, first)

    def remark(self, text: str) -> None:
        """Add a note on the whole log, once."""
        self.remarks[text] = None

    def lines(self, where: str) -> list[str]:
        """Return every note as one line of text."""
        found = [
            f"{where}:{first}: {count:,} left out: {reason}"
            for reason, (count, first) in self.left_out.items()
        ]
        found += [f"{where}: {line}" for line in seen_lines(self.seen)]
        return found + [f"{where}: {text}" for text in self.remarks]


@dataclass(frozen=True, slots=True)
class Logged:
    """A log's data on one request: texts, segments or token ids, token counts if logged, and latencies."""

    arrival_ns: int
    prompt: Said
    answer: Said
    input_tokens: int | None = None
    output_tokens: int | None = None
    session: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


#: An answer continues the ids of a prompt whose estimated length is that close to the counted one.
_CLOSE = 0.15


class Naming:
    """Cuts prompts into blocks of ``block_size`` tokens and names each, with all before it, by a keyed hash.

    Texts become tokens by ``tokenizer``, a tokenizer.json; a chat template in its folder renders chats.
    Without it, ``bytes_per_token`` bytes of text count as a token: as given, or as a log's counts say
    (``token_counts``), else 4. Raises UsageError for an unusable tokenizer.
    """

    def __init__(
        self, block_size: int, salt: bytes, tokenizer: str | None = None, bytes_per_token: int | None = None
    ) -> None:
        settings = ReadSettings(tokenizer=tokenizer, bytes_per_token=bytes_per_token)
        self.block_size, self.salt = block_size, salt
        self.said = "" if tokenizer is not None else settings.token_bytes_said
        self.renderer = renderer_of(None if tokenizer is None else Path(tokenizer))
        self.encode = encoder(settings)
        self._tokenizes = tokenizer is not None
        #: True if the bytes a token are not learned.
        self.is_exact = self._tokenizes or bytes_per_token is not None
        self.bytes_per_token: float = token_bytes(settings)
        #: Tokens of an image by the log's counts; None: as assumed.
        self.image_tokens: int | None = None
        #: True if a text was tokenized, or a chat rendered: the method is worth a note.
        self.met_text = self.met_chat = False

    def tokens(self, given: Said) -> list[int]:
        """Return the tokens of a text, or the given tokens; without a tokenizer, pieces of bytes."""
        if isinstance(given, list):
            return given
        return [token for piece in self.pieces(given) for token in self.of_piece(piece)]

    def pieces(self, given: Said) -> list[Piece]:
        """Return the pieces of a prompt or an answer that are tokenized together; none of token ids."""
        self.met_chat = self.met_chat or isinstance(given, Chat)
        return list(pieces(given, self.renderer.render, self.is_exact))

    def of_piece(self, piece: Piece) -> list[int]:
        """Return the tokens of a piece."""
        if piece.text is None:
            image = self.image_tokens if piece.segments[0].kind == "image" else None
            return opaque_tokens(piece.segments[0], image)
        self.met_text = True
        encoded = self.encode(piece.text)
        if self._tokenizes:
            return array("I", encoded).tolist()
        size = self.bytes_per_token
        count = -int(-len(encoded) // size)
        cuts = [min(round(at * size), len(encoded)) for at in range(count)] + [len(encoded)]
        return [crc32(encoded[start:stop]) for start, stop in pairwise(cuts)]

    def _both(self, logged: Logged) -> tuple[list[int], list[KindTokens]]:
        """Return the tokens of prompt and answer, and the prompt's by kind.

        Byte pieces run on from the prompt into the answer, as in the prompt of the next turn.
        """
        if isinstance(logged.prompt, list):
            return [*logged.prompt, *self.tokens(logged.answer)], [KindTokens("", len(logged.prompt))]
        asked, answer = self.pieces(logged.prompt), self.pieces(logged.answer)
        found = [self.of_piece(piece) for piece in asked]
        kinds = [each for piece, ids in zip(asked, found, strict=True) for each in _by_kind(piece, len(ids))]
        last = asked[-1].text if asked else None
        if answer and last is not None and answer[0].text is not None and not self._tokenizes:
            answer[0] = Piece(answer[0].segments, last + answer[0].text)
            found.pop()
        found += [self.of_piece(piece) for piece in answer]
        found += [logged.answer] if isinstance(logged.answer, list) else []
        return [token for tokens in found for token in tokens], kinds

    def named(self, logged: Logged) -> Imported:
        """Return a request with its ids. Token counts of the log take precedence.

        The answer gets ids if the tokens of the prompt's text are as many as counted (estimates: 15 % more or
        less); else its start within the blocks is unknown.
        """
        tokens, kinds = self._both(logged)
        prompt = sum(each.tokens for each in kinds)
        inputs = prompt if logged.input_tokens is None else logged.input_tokens
        outputs = len(tokens) - prompt if logged.output_tokens is None else logged.output_tokens
        is_close = inputs == prompt or (not self.is_exact and abs(inputs - prompt) <= _CLOSE * inputs)
        has_answer = is_close and len(tokens) > max(prompt, inputs)
        named = tokens[: inputs + outputs] if has_answer else tokens[: min(prompt, inputs)]
        return Imported(
            logged.arrival_ns,
            inputs,
            outputs,
            salted_ids(named, self.block_size, self.salt),
            len(named) if has_answer else 0,
            self.session(logged.session),
            logged.measured,
            _merged(kinds),
            prompt,
        )

    def session(self, name: str) -> str:
        """Return the trace's name for a session."""
        return f"s{salted_names([name], self.salt)[0]:x}" if name else ""


def _by_kind(piece: Piece, tokens: int) -> Iterator[KindTokens]:
    """Yield the tokens of each segment of a piece, by the share of its text."""
    past, size = 0, len(piece.text or "")
    for segment in piece.segments:
        stop = past + len(segment.text)
        share = tokens if not size else round(tokens * stop / size) - round(tokens * past / size)
        yield KindTokens(segment.kind, share)
        past = stop


def _merged(kinds: list[KindTokens]) -> list[KindTokens]:
    """Return the tokens by kind, neighbors of one kind together; markers count with what is before them."""
    found: list[KindTokens] = []
    for kind, tokens in kinds:
        last = found[-1] if found else None
        if last is not None and (kind in ("template", last.kind) or last.kind == "template"):
            found[-1] = KindTokens(kind if last.kind == "template" else last.kind, last.tokens + tokens)
        elif kind:
            found.append(KindTokens(kind, tokens))
    return found
