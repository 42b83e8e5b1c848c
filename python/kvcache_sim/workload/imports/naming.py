"""Texts and tokens of a log as lengths and salted block ids, which reveal only shared prefixes."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.workload.prompts.segments import Prompt, Segment
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


@dataclass(frozen=True, slots=True)
class Imported:
    """One request: its arrival in ns since the log's own origin, its lengths in tokens and its block ids.

    The ids cover the first ``named_tokens`` tokens of prompt and answer; 0 means the prompt only.
    ``measured`` has the log's latencies and hits (``cached_tokens``, ``ttft_ms``), kept in the row.
    """

    arrival_ns: int
    input_tokens: int
    output_tokens: int
    ids: list[int]
    named_tokens: int = 0
    session: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


class Notes:
    """Counts the parts of a log that were left out by reason, with the first line of each; collects notes."""

    def __init__(self) -> None:
        self.left_out: dict[str, tuple[int, int]] = {}
        self.remarks: dict[str, None] = {}

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
        return found + [f"{where}: {text}" for text in self.remarks]


#: A prompt or an answer as a log has it: text, segments or token ids; None without.
Said = str | Prompt | list[int] | None


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


class Naming:
    """Cuts prompts into blocks of ``block_size`` tokens and names each, with all before it, by a keyed hash.

    Texts become tokens by ``tokenizer`` (a tokenizer.json). Without it, a fixed number of bytes counts as a
    token (4, an estimate). Raises UsageError for an unusable tokenizer.
    """

    def __init__(
        self, block_size: int, salt: bytes, tokenizer: str | None = None, bytes_per_token: int | None = None
    ) -> None:
        settings = ReadSettings(tokenizer=tokenizer, bytes_per_token=bytes_per_token)
        self.block_size, self.salt = block_size, salt
        self.said = "" if tokenizer is not None else settings.token_bytes_said
        self._encode: Callable[[str], bytes] = encoder(settings)
        self._whole, self._bytes = tokenizer is not None, token_bytes(settings)
        #: True if a text was tokenized, so that the method is worth a note.
        self.met_text = False

    def tokens(self, given: Said) -> list[int]:
        """Return the tokens of a text, or the given tokens; without a tokenizer, pieces of bytes."""
        if given is None or isinstance(given, list):
            return given or []
        if isinstance(given, tuple):
            return [token for segment in given for token in self._of_segment(segment)]
        self.met_text = self.met_text or bool(given)
        encoded = self._encode(given)
        if self._whole:
            return array("I", encoded).tolist()
        size = self._bytes
        return [crc32(encoded[at : at + size]) for at in range(0, len(encoded), size)]

    def _of_segment(self, segment: Segment) -> list[int]:
        if segment.tokens is None:
            return self.tokens(segment.text)
        name = "\0".join((segment.kind, segment.name, segment.text))
        first = crc32(name.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF
        return list(range(first, first + segment.tokens))

    def _both(self, logged: Logged) -> tuple[list[int], int]:
        """Return the tokens of prompt and answer, and the number of prompt tokens.

        Byte pieces run on from the prompt into the answer, as in the prompt of the next turn.
        """
        prompt = self.tokens(logged.prompt)
        if isinstance(logged.prompt, str) and isinstance(logged.answer, str) and not self._whole:
            return self.tokens(logged.prompt + logged.answer), len(prompt)
        return [*prompt, *self.tokens(logged.answer)], len(prompt)

    def named(self, logged: Logged) -> Imported:
        """Return a request with its ids. Token counts of the log take precedence.

        If they differ from the tokens of its texts, the answer gets no ids, since its start within the blocks
        is unknown.
        """
        tokens, prompt = self._both(logged)
        inputs = prompt if logged.input_tokens is None else logged.input_tokens
        outputs = len(tokens) - prompt if logged.output_tokens is None else logged.output_tokens
        has_answer = inputs == prompt and len(tokens) > prompt
        named = tokens[: inputs + outputs] if has_answer else tokens[: min(prompt, inputs)]
        return Imported(
            logged.arrival_ns,
            inputs,
            outputs,
            salted_ids(named, self.block_size, self.salt),
            len(named) if has_answer else 0,
            self.session(logged.session),
            logged.measured,
        )

    def session(self, name: str) -> str:
        """Return the trace's name for a session."""
        return f"s{salted_names([name], self.salt)[0]:x}" if name else ""
