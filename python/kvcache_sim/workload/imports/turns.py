"""Conversations of logs that have counts but no whole prompts: each prompt begins with a part of the last.

The counts of a log are exact and give every length. What a prompt has more than the one before is the answer
before and what the log has since, divided in proportion to bytes. Tools and system prompt are in no log: they
are what the lines do not explain of a first prompt, and conversations share as much of them as the provider
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kvcache_sim.workload.imports.naming import Logged, Notes
from kvcache_sim.workload.imports.source import count_of, member, problem
from kvcache_sim.workload.prompts.segments import Prompt, Segment

#: A longer prompt is refused: no model takes it, and its tokens are told one by one.
LONGEST_PROMPT = 1 << 22
#: Tokens after the last breakpoint that are still counted as part of what the next prompt begins with.
_TAIL_TOKENS = 32
_BYTES_A_TOKEN = 4.0
#: An image counts as this many bytes beside texts: about 1,600 tokens, the most of one by Anthropic's pages.
_IMAGES, _IMAGE_BYTES = ("image", "input_image"), 6400
#: Members of messages and their parts that are no text of a prompt.
_UNSAID = {
    "type",
    "role",
    "id",
    "model",
    "call_id",
    "tool_use_id",
    "signature",
    "encrypted_content",
    "status",
}

#: Why calls are left out, and what is said of logs that state what a prompt has of the one before.
EMPTY = "calls of no tokens"
BY_COUNTS = "each prompt begins with as much of the one before as was served from the cache, the rest is new"


class Piece(NamedTuple):
    """A part of a prompt as a log has it: its kind, and the bytes of its text."""

    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a conversation: its counts, and what was added to the prompt since the call before."""

    at_ns: int
    session: str
    model: str
    input_tokens: int
    cached_tokens: int | None
    #: None: learned from the growth of the next prompt, at least ``seen_tokens``.
    output_tokens: int | None
    seen_tokens: int = 1
    #: Tokens that the call left in the provider's cache; None if the log does not say.
    carried_tokens: int | None = None
    #: Most tokens of the prompt before that this one begins with; None: all of them, and the answer.
    kept_tokens: int | None = None
    #: True after a compaction: no more than the provider read, or tools and system, is left.
    anew: bool = False
    is_side: bool = False
    #: Names the call where a log copies its lines: the same again is no other call.
    call: str = ""
    answer_bytes: int = 0
    added: tuple[Piece, ...] = ()


def text_bytes(value: Any) -> int:
    """Return the bytes of the texts within a JSON value; of one whose text is cut out, its ``kv.bytes``."""
    size, left = 0, [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            size += len(part.encode("utf-8", "surrogatepass"))
        elif isinstance(part, list):
            left.extend(part)
        elif isinstance(part, dict):
            cut = member(part.get("kv"), "bytes")
            if isinstance(cut, int):
                size += max(0, cut)
            elif part.get("type") in _IMAGES:
                size += _IMAGE_BYTES
            else:
                left.extend(each for name, each in part.items() if name not in _UNSAID)
    return size


def prompt_count(number: int, row: Any, *names: str) -> int | None:
    """Return a count as ``count_of``; TraceProblem if no prompt is that long."""
    found = count_of(number, row, *names)
    if found is not None and found > LONGEST_PROMPT:
        raise problem(number, f"{names[0]} is no prompt's", found, f"at most {LONGEST_PROMPT} tokens")
    return found


def told(turns: Sequence[Turn], notes: Notes) -> Iterator[tuple[int, Logged]]:
    """Yield the position in ``turns`` and the request of each call, in order of time."""
    order = sorted(range(len(turns)), key=lambda number: turns[number].at_ns)
    after: dict[int, int] = {}
    last: dict[tuple[str, str], int] = {}
    for number in order:
        chain = (turns[number].session, turns[number].model)
        if chain in last:
            after[last[chain]] = number
        last[chain] = number
    growths = [_Growth.between(turns[a], turns[b]) for a, b in after.items()]
    known = [each for each in growths if each.tokens > 0 and each.size_bytes]
    tokens = sum(each.tokens for each in known)
    ratio = sum(each.size_bytes for each in known) / tokens if tokens else _BYTES_A_TOKEN
    if any(turn.output_tokens is None for turn in turns):
        notes.remark(
            f"answers are as long as the prompts after them grew, in proportion to bytes, {ratio:.2f} bytes a "
            "token where none follows: output_tokens of unfinished lines is not their length"
        )
    teller = _Teller(ratio, notes)
    for number in order:
        following = turns[after[number]] if number in after else None
        if (logged := teller.tell(turns[number], following)) is not None:
            yield number, logged
    teller.remarks()


class _Growth(NamedTuple):
    """Tokens that a prompt has more than the one before, and the bytes that explain them."""

    tokens: int
    answer_bytes: int
    size_bytes: int

    @classmethod
    def between(cls, one: Turn, other: Turn) -> _Growth:
        goes_on = not other.anew and other.kept_tokens is None
        tokens = other.input_tokens - one.input_tokens if goes_on else 0
        added = sum(piece.size_bytes for piece in other.added)
        return cls(max(0, tokens), one.answer_bytes, one.answer_bytes + added)


@dataclass(slots=True)
class _Chain:
    """A conversation with one model: its last call, prompt and answer, and the size of tools and system."""

    turn: Turn
    prompt: Prompt
    answer: Prompt
    base_tokens: int


@dataclass(slots=True)
class _Teller:
    """Tells calls in order of time; ``_marks`` are the prefixes that an earlier call of a model read or left."""

    bytes_a_token: float
    notes: Notes
    _chains: dict[tuple[str, str], _Chain] = field(default_factory=dict)
    _marks: dict[tuple[str, int], Prompt] = field(default_factory=dict)
    #: Prompts of the last conversation of a model that began with nothing cached.
    _cold: dict[tuple[str, bool], Prompt] = field(default_factory=dict)
    _calls: dict[str, _Chain] = field(default_factory=dict)
    _told: int = 0
    _copies: int = 0
    _tails: int = 0

    def tell(self, turn: Turn, following: Turn | None) -> Logged | None:
        """Return a call as a request; None for a copy of one."""
        self._told += 1
        place = (turn.session, turn.model)
        if turn.call and turn.call in self._calls:
            self._copies += 1
            self._chains[place] = replace(self._calls[turn.call])
            return None
        before = self._chains.get(place)
        opening = self._opening(turn) if before is None else self._kept(before, turn)
        prompt = self._extended(opening, turn)
        outputs = self._outputs(turn, following)
        answer = (Segment("assistant", tokens=outputs, name=f"{self._told}"),)
        base = before.base_tokens if before else sum(s.tokens or 0 for s in prompt if s.kind == "system")
        self._chains[place] = chain = _Chain(turn, prompt, answer, base)
        if turn.call:
            self._calls[turn.call] = chain
        self._mark(turn, prompt, before is None)
        measured = {} if turn.cached_tokens is None else {"cached_tokens": float(turn.cached_tokens)}
        return Logged(turn.at_ns, prompt, answer, turn.input_tokens, outputs, turn.session, measured)

    def remarks(self) -> None:
        """Say how prompts were told, and what was left out."""
        if self._told:
            self.notes.remark(
                "prompts are told by the log's counts: each begins with the one before; tools and system are "
                "what a first prompt's lines do not explain, shared as far as the provider read"
            )
        if self._copies:
            self.notes.remark(
                f"{self._copies:,} calls are copied from another session: no requests of their own"
            )
        if self._tails:
            self.notes.remark(
                f"{self._tails:,} calls sent more than {_TAIL_TOKENS} tokens after their last breakpoint: "
                "new in the next prompt"
            )

    def _opening(self, turn: Turn) -> Prompt:
        """Return the tools and system of a first prompt, with what the provider read of another's."""
        read = min(turn.cached_tokens or 0, turn.input_tokens)
        shared = self._marks.get((turn.model, read)) if read else None
        if shared is None and read:
            shared = self._cold.get((turn.model, turn.is_side))
        found = () if shared is None else _cut(shared, read)
        explained = round(sum(piece.size_bytes for piece in turn.added) / self.bytes_a_token)
        rest = max(read, turn.input_tokens - explained) - _size(found)
        return (*found, Segment("system", tokens=rest, name=f"{self._told}")) if rest else found

    def _kept(self, before: _Chain, turn: Turn) -> Prompt:
        """Return what a prompt has of the one before and its answer."""
        last, whole = before.turn, (*before.prompt, *before.answer)
        if turn.kept_tokens is not None:
            return _cut(whole, min(turn.kept_tokens, turn.input_tokens))
        if turn.anew or turn.input_tokens < last.input_tokens:
            return _cut(before.prompt, min(turn.cached_tokens or before.base_tokens, turn.input_tokens))
        if last.carried_tokens is not None and last.input_tokens - last.carried_tokens > _TAIL_TOKENS:
            self._tails += 1
            return _cut(before.prompt, last.carried_tokens)
        return _cut(whole, turn.input_tokens)

    def _extended(self, opening: Prompt, turn: Turn) -> Prompt:
        """Return a prompt of the log's length: the rest is divided among what was added, by bytes."""
        left, found = turn.input_tokens - _size(opening), list(opening)
        pieces = turn.added or (Piece("template", 0),)
        size = sum(piece.size_bytes for piece in pieces)
        for number, piece in enumerate(pieces):
            tokens = (
                left if number == len(pieces) - 1 else round(left * piece.size_bytes / size) if size else 0
            )
            if tokens:
                found.append(Segment(piece.kind, tokens=tokens, name=f"{self._told}.{number}"))
            left, size = left - tokens, size - piece.size_bytes
        return tuple(found)

    def _outputs(self, turn: Turn, following: Turn | None) -> int:
        if turn.output_tokens is not None:
            return turn.output_tokens
        grown = _Growth.between(turn, following) if following is not None else _Growth(0, 0, 0)
        share = turn.answer_bytes / self.bytes_a_token
        if grown.tokens and grown.size_bytes:
            share = grown.tokens * grown.answer_bytes / grown.size_bytes
        return max(turn.seen_tokens, round(share), 1)

    def _mark(self, turn: Turn, prompt: Prompt, is_first: bool) -> None:
        """Remember what another conversation of the model may read."""
        if turn.carried_tokens is not None:
            self._marks[turn.model, turn.carried_tokens] = prompt
        if turn.cached_tokens and (is_first or turn.carried_tokens is not None):
            self._marks.setdefault((turn.model, turn.cached_tokens), prompt)
        if is_first and turn.cached_tokens == 0:
            self._cold[turn.model, turn.is_side] = prompt


def _size(prompt: Prompt) -> int:
    return sum(segment.tokens or 0 for segment in prompt)


def _cut(prompt: Prompt, tokens: int) -> Prompt:
    """Return the first tokens of a prompt; all of it if it has no more."""
    found: list[Segment] = []
    for segment in prompt:
        size = min(segment.tokens or 0, tokens)
        if size <= 0:
            break
        found.append(segment if size == segment.tokens else segment._replace(tokens=size))
        tokens -= size
    return tuple(found)
