"""Conversations of logs that have counts but no whole prompts: each prompt begins with a part of the last.

The counts of a log are exact and give every length. What a prompt has more than the one before is the answer
before and what the log has since, divided in proportion to bytes. Tools and system prompt are in no log: they
are what the lines do not explain of a first prompt, and conversations share as much of them as the provider
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.naming import Logged, Notes
from kvcache_sim.workload.imports.source import problem
from kvcache_sim.workload.prompts.body import count, json_text, member
from kvcache_sim.workload.prompts.parts import without_markers
from kvcache_sim.workload.prompts.segments import Prompt, Segment

Row = TypeVar("Row")

#: A longer prompt is refused: no model takes it, and each of its tokens is made.
LONGEST_PROMPT = 1 << 22
#: Tokens after the last breakpoint that still count as part of what the next prompt begins with.
_TAIL_TOKENS = 32
_BYTES_A_TOKEN = 4.0
#: Members of messages and their parts that are no text of a prompt, images among them.
_UNSAID = {"type", "role", "id", "call_id", "tool_use_id", "status", "signature", "encrypted_content"}
_UNSAID |= {"source", "image_url", "kv"}
#: Why calls are left out.
EMPTY = "calls without counted tokens"
_HOW = (
    "prompts are rebuilt from the log's counts: each begins with the one before; tools and system are what a "
    "first prompt's lines do not explain, shared as far as the provider read"
)


class Piece(NamedTuple):
    """A part of a prompt as a log has it: its kind, the bytes of its text, and a hash of its content."""

    kind: str
    size_bytes: int
    name: str = ""


@dataclass(slots=True)
class Details:
    """The part of a call that no trace has: times, lifetimes, links, the provider's cause of a miss.

    ``first_ns`` is the stamp of its first line, ``written`` its tokens written by lifetime (``5m``, ``1h``).
    ``parent`` is the line that its prompt continues, ``lines`` have the call's own. ``head`` are tools and
    system where the log has them, ``event`` what it says of a change of the history. ``label`` is the
    provider's cause of a miss and its tokens, None where the provider was not asked. ``folder`` is where the
    client ran.
    """

    id: str
    first_ns: int
    written: dict[str, int] = field(default_factory=dict)
    answer: list[Piece] = field(default_factory=list)
    parent: str = ""
    lines: list[str] = field(default_factory=list)
    head: tuple[Piece, ...] = ()
    event: str = ""
    label: tuple[str, int | None] | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    provider: str = "anthropic"
    folder: str = ""


@dataclass(slots=True)
class Turn:
    """One call of a conversation: its counts, and what was ``added`` to the prompt since the call before.

    ``output_tokens``, None: learned from the growth of the next prompt, at least ``seen_tokens``.
    ``carried_tokens`` are what the call left in the provider's cache, if the log says it; ``kept_tokens`` the
    most of the prompt before that this one begins with, None for all and the answer. ``anew``: after a
    compaction no more is left than the provider read, or tools and system. ``call`` names a call whose lines
    the log may copy; ``details`` is the rest that its log has.
    """

    at_ns: int
    session: str
    model: str
    input_tokens: int
    cached_tokens: int | None
    output_tokens: int | None
    added: Sequence[Piece] = ()
    kept_tokens: int | None = None
    anew: bool = False
    carried_tokens: int | None = None
    seen_tokens: int = 1
    answer_bytes: int = 0
    is_side: bool = False
    call: str = ""
    details: Details | None = None


def text_bytes(value: Any) -> int:
    """Return the bytes of the texts within a JSON value; of one whose text is cut out, its ``kv.bytes``."""
    size, left = 0, [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            size += len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass"))
        elif isinstance(part, list):
            left.extend(part)
        elif isinstance(part, dict):
            cut = member(part.get("kv"), "bytes")
            if isinstance(cut, int):
                size += min(max(0, cut), LONGEST_PROMPT)
            else:
                left.extend(each for name, each in part.items() if name not in _UNSAID)
    return size


def content_hash(part: Any) -> str:
    """Return a hash of a part's text, else of all that is content; of one that is cut out its ``kv.h``."""
    cut = member(member(part, "kv"), "h")
    if isinstance(cut, str):
        return cut
    text = part if isinstance(part, str) else member(part, "text", "content")
    if not isinstance(text, str):
        text = json_text(without_markers(part) if isinstance(part, dict) else part)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def prompt_count(number: int, row: Any, *names: str) -> int | None:
    """Return a count as ``count``; TraceProblem if no prompt is that long."""
    found = count(row, *names)
    if found is not None and found > LONGEST_PROMPT:
        raise problem(number, f"{names[0]} is no prompt's", found, f"at most {LONGEST_PROMPT} tokens")
    return found


def in_sessions(rows: Iterable[tuple[int, Row]], path: str, notes: Notes) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a log; each turn has a session (else its file) and is not before its last.

    Raises TraceProblem for more cached tokens than a prompt has.
    """
    latest, earlier = dict[str, int](), 0
    for line, row in rows:
        if isinstance(row, Turn):
            written = sum(row.details.written.values()) if row.details is not None else 0
            cached = (row.cached_tokens or 0) + written
            if cached > row.input_tokens:
                expected = f"at most {row.input_tokens} tokens"
                raise problem(line, "more cached tokens than the prompt has", cached, expected)
            row.session = row.session or path
            earlier += row.at_ns + NS_PER_S < latest.get(row.session, 0)
            row.at_ns = latest[row.session] = max(row.at_ns, latest.get(row.session, 0))
        yield line, row
    if earlier:
        notes.remark(f"{earlier:,} calls are before the call above them: taken to begin with it")


def requests_of(turns: Sequence[Turn], notes: Notes) -> Iterator[Logged]:
    """Yield the request of each call in order of time; copies of a call are counted."""
    ordered = sorted(turns, key=lambda turn: turn.at_ns)
    #: Tokens a byte by which the prompt after a call grew; 0 if none did.
    rates, last = [0.0] * len(ordered), dict[tuple[str, str], int]()
    all_tokens = all_bytes = 0
    for number, turn in enumerate(ordered):
        before = last.get((turn.session, turn.model))
        last[turn.session, turn.model] = number
        if before is not None and not turn.anew and turn.kept_tokens is None:
            tokens = turn.input_tokens - ordered[before].input_tokens
            size = ordered[before].answer_bytes + sum(piece.size_bytes for piece in turn.added)
            if tokens > 0 and size:
                rates[before] = tokens / size
                all_tokens, all_bytes = all_tokens + tokens, all_bytes + size
    ratio = all_bytes / all_tokens if all_tokens else _BYTES_A_TOKEN
    if any(turn.kept_tokens is None for turn in turns):
        notes.remark(_HOW)
    if any(turn.output_tokens is None for turn in turns):
        notes.remark(
            "output_tokens of unfinished lines is no length: answers are as long as the next prompt grew, in "
            f"proportion to bytes; without a next one, {ratio:.2f} bytes are a token"
        )
    rebuilder, copies = _Rebuilder(ratio, notes), 0
    for turn, rate in zip(ordered, rates, strict=True):
        logged = rebuilder.request(turn, rate or 1 / ratio)
        copies += logged is None
        if logged is not None:
            yield logged
    if copies:
        notes.remark(f"{copies:,} calls are copies of another session's: counted once")


class _Rebuilt(NamedTuple):
    """The last call of a conversation with one model, its prompt and answer."""

    turn: Turn
    prompt: Prompt
    answer: Prompt


class _Rebuilder:
    """Makes requests of calls in order of time."""

    def __init__(self, bytes_a_token: float, notes: Notes) -> None:
        self._ratio, self._notes, self._number = bytes_a_token, notes, 0
        self._chains: dict[tuple[str, str], _Rebuilt] = {}
        self._calls: dict[str, _Rebuilt] = {}
        #: Prompts by model and the length that an earlier call read, or left in the cache.
        self._marks: dict[tuple[str, int], Prompt] = {}
        #: First prompts of the last conversations that began with nothing cached.
        self._cold: dict[tuple[str, bool], Prompt] = {}

    def request(self, turn: Turn, tokens_a_byte: float) -> Logged | None:
        """Return a call as a request; None for a copy of one."""
        self._number += 1
        chain, before = (turn.session, turn.model), self._chains.get((turn.session, turn.model))
        if turn.call in self._calls:
            self._chains[chain] = self._calls[turn.call]
            return None
        opening = self._opening(turn) if before is None else self._kept(before, turn)
        prompt = self._extended(opening, turn)
        outputs = turn.output_tokens
        if outputs is None:
            outputs = max(turn.seen_tokens, round(turn.answer_bytes * tokens_a_byte))
        answer = (Segment("assistant", tokens=outputs, name=f"{self._number}"),)
        self._chains[chain] = _Rebuilt(turn, prompt, answer)
        if turn.call:
            self._calls[turn.call] = self._chains[chain]
        if turn.carried_tokens is not None:
            self._marks[turn.model, turn.carried_tokens] = prompt
        if turn.cached_tokens and (before is None or turn.carried_tokens is not None):
            self._marks.setdefault((turn.model, turn.cached_tokens), prompt)
        if before is None and turn.cached_tokens == 0:
            self._cold[turn.model, turn.is_side] = prompt
        measured = {} if turn.cached_tokens is None else {"cached_tokens": float(turn.cached_tokens)}
        return Logged(turn.at_ns, prompt, answer, turn.input_tokens, outputs, turn.session, measured)

    def _opening(self, turn: Turn) -> Prompt:
        """Return the tools and system of a first prompt, with what the provider read of another's.

        A log that states what each prompt keeps may be many users': its conversations share nothing.
        """
        read = 0 if turn.kept_tokens is not None else min(turn.cached_tokens or 0, turn.input_tokens)
        shared = self._marks.get((turn.model, read)) or self._cold.get((turn.model, turn.is_side), ())
        found = _cut(shared, read)
        explained = round(sum(piece.size_bytes for piece in turn.added) / self._ratio)
        rest = max(read, turn.input_tokens - explained) - _size(found)
        kind = "system" if turn.added else "user"
        return (*found, Segment(kind, tokens=rest, name=f"{self._number}"))

    def _kept(self, before: _Rebuilt, turn: Turn) -> Prompt:
        """Return what a prompt has of the one before and its answer."""
        last, kept = before.turn, turn.input_tokens
        if turn.kept_tokens is not None:
            kept = min(kept, turn.kept_tokens)
        elif turn.anew or kept < last.input_tokens:
            base = tuple(segment for segment in before.prompt if segment.kind == "system")
            kept = min(kept, turn.cached_tokens or _size(base))
        elif last.carried_tokens is not None and last.input_tokens - last.carried_tokens > _TAIL_TOKENS:
            kept = last.carried_tokens
            self._notes.remark(
                f"more than {_TAIL_TOKENS} tokens after a call's last breakpoint are new in the next prompt"
            )
        return _cut((*before.prompt, *before.answer), kept)

    def _extended(self, opening: Prompt, turn: Turn) -> Prompt:
        """Return a prompt of the log's length: the rest is divided among what was added, by bytes."""
        left, found = turn.input_tokens - _size(opening), list(opening)
        pieces = turn.added or (Piece("user", 0),)
        size = sum(piece.size_bytes for piece in pieces)
        for number, piece in enumerate(pieces):
            is_last = number == len(pieces) - 1
            tokens = left if is_last else round(left * piece.size_bytes / max(size, 1))
            found.append(Segment(piece.kind, tokens=tokens, name=f"{self._number}.{number}"))
            left, size = left - tokens, size - piece.size_bytes
        return tuple(segment for segment in found if segment.tokens)


def _size(prompt: Prompt) -> int:
    return sum(segment.tokens or 0 for segment in prompt)


def _cut(prompt: Prompt, tokens: int) -> Prompt:
    """Return the first tokens of a prompt; all of it if it has no more."""
    found: list[Segment] = []
    for segment in prompt:
        size = min(segment.tokens or 0, tokens)
        if size <= 0:
            break
        found.append(segment._replace(tokens=size))
        tokens -= size
    return tuple(found)
