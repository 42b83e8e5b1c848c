"""A trace whose conversations edit their context (``context_edits``): prompts, blocks and segments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.workload.context_edits import ContextEdit, EditedContext, size_tokens
from kvcache_sim.workload.imports.naming import Imported, KindTokens
from kvcache_sim.workload.tokens.row_key import id_name
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace

#: Columns that a trace may not have: an edited request would need others.
_UNUSED = ("after", "priority", "abort_after_ns", "tenant", "model", "retention", "live_ns", "play")


class _Part(NamedTuple):
    """A piece of a prompt: tokens from ``start`` of a row's prompt and answer, or new ones of a name."""

    kind: str
    tokens: int
    row: int = -1
    start: int = 0
    name: str = ""


def edited(trace: Trace, edit: ContextEdit) -> Iterator[Imported]:
    """Yield the requests of an edited trace in order of arrival.

    Raises:
        TraceError: Rows have no ``segments``, or ones that are not as long as their prompt.
        UsageError: The trace has columns that an edit cannot keep, or waits for answers.
    """
    columns = [name for name in _UNUSED if len(getattr(trace, name))]
    if columns or bool((trace.think_ns != OPEN_LOOP).any()):
        got = ", ".join(columns) or "rows that wait for answers"
        raise UsageError("a trace of other columns is not edited", where=trace.source, got=got)
    rows = _Rows(trace)
    contexts: dict[int, tuple[EditedContext[_Part], int]] = {}
    for row in range(len(trace)):
        session = int(trace.session[row])
        key = session if session != NO_SESSION else -2 - row
        context, last = contexts.get(key, (EditedContext(edit, _made(key)), -1))
        contexts[key] = context, row
        parts, kept = rows.parts(row, rows.kept_tokens(last, row))
        answer = [_Part("assistant", int(trace.output_tokens[row]), row, int(trace.input_tokens[row]))]
        *asked, prompt = context.prompts(parts, kept, answer)
        for each in asked:
            yield rows.request(row, each, edit.summary_tokens, None)
        yield rows.request(row, prompt, int(trace.output_tokens[row]), answer[0])


def _made(session: int) -> Callable[[str, str, int], _Part]:
    def made(kind: str, name: str, tokens: int) -> _Part:
        return _Part(kind, tokens, name=name if name == "dropped" else f"{session} {name}")

    return made


class _Rows:
    """The rows of a trace as parts, and parts as requests."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._size = trace, trace.block_size
        self._ids = trace.block_ids.tolist()
        self._starts = trace.id_offsets.tolist()

    def ids(self, row: int) -> Sequence[int]:
        """Return the ids of a row, as the trace numbers them."""
        found: list[int] = self._ids[self._starts[row] : self._starts[row + 1]]
        return found

    def kept_tokens(self, before: int, row: int) -> int:
        """Return the tokens that a prompt shares with the prompt and answer before it."""
        if before < 0:
            return 0
        was, now, blocks = self.ids(before), self.ids(row), 0
        for a, b in zip(was, now, strict=False):
            if a != b:
                break
            blocks += 1
        whole = int(self._trace.input_tokens[before] + self._trace.output_tokens[before])
        length = int(self._trace.input_tokens[row])
        # the last block of the earlier call may be partial: all of it is shared if all before it is
        is_all = blocks >= whole // self._size and blocks * self._size <= whole
        return min(whole if is_all else blocks * self._size, length)

    def parts(self, row: int, kept_tokens: int) -> tuple[list[_Part], int]:
        """Return the pieces of a prompt, cut where the kept tokens end, and how many are kept."""
        found, at, kept = list[_Part](), 0, 0
        for kind, tokens in self._segments(row):
            cuts = [at, *([kept_tokens] if at < kept_tokens < at + tokens else []), at + tokens]
            for start, stop in pairwise(cuts):
                found.append(_Part(kind, stop - start, row, start))
                kept += stop <= kept_tokens
            at += tokens
        return found, kept

    def _segments(self, row: int) -> list[tuple[str, int]]:
        extra = self._trace.extra[row] if self._trace.extra else ""
        given = json.loads(f"{{{extra}}}").get("segments") if extra else None
        length = int(self._trace.input_tokens[row])
        where = f"{self._trace.source}: request {row}"
        if not given:
            hint = "kvsim trace import writes them of logs with chats or of agents' sessions"
            raise TraceError("no segments, so nothing to edit by", where=where, hint=hint)
        found = [(str(kind), int(tokens)) for kind, tokens in given]
        if sum(tokens for _, tokens in found) != length:
            raise TraceError(
                "segments of another length", where=where, got=str(given), expected=f"{length} tokens"
            )
        return found

    def request(self, row: int, prompt: Sequence[_Part], output: int, answer: _Part | None) -> Imported:
        """Return a request with this prompt; ``answer`` is named where the row's own is."""
        named = int(self._trace.named_tokens[row]) if len(self._trace.named_tokens) else 0
        has_answer = answer is not None and named > 0
        parts = [*prompt, answer] if has_answer and answer is not None else list(prompt)
        length = size_tokens(prompt)
        name = self._trace.session_id(int(self._trace.session[row])) or ""
        return Imported(
            int(self._trace.arrival_ns[row]),
            length,
            output,
            self._names(parts),
            size_tokens(parts) if has_answer else 0,
            name,
            segments=_joined(prompt),
        )

    def _names(self, parts: Sequence[_Part]) -> list[int]:
        """Return the ids of whole blocks: the trace's own as far as nothing is changed, then new ones.

        A new block is known by all before it and by the trace's blocks that its tokens are from.
        """
        found = self._unchanged(parts)
        parent = str(found[-1]) if found else ""
        skip, content, filled = len(found) * self._size, list[str](), 0
        for part in parts:
            skipped = min(skip, part.tokens)
            skip -= skipped
            at, left = part.start + skipped, part.tokens - skipped
            while left:
                of_block = self._size - at % self._size if part.row >= 0 else left
                step = min(left, self._size - filled, of_block)
                content.append(self._content(part, at, step))
                at, left, filled = at + step, left - step, filled + step
                if filled == self._size:
                    digest = blake2b(f"{parent}|{content}".encode(), digest_size=8).digest()
                    found.append(int.from_bytes(digest, "big") >> 1)
                    parent, content, filled = str(found[-1]), [], 0
        return found

    def _unchanged(self, parts: Sequence[_Part]) -> list[int]:
        """Return the ids of the first blocks that are those of a row's own prompt."""
        size, row = 0, -1
        for part in parts:
            if part.row < 0 or part.start != size:
                break
            size, row = size + part.tokens, part.row
        return [self._own(each) for each in self.ids(row)[: size // self._size]] if row >= 0 else []

    def _content(self, part: _Part, at: int, tokens: int) -> str:
        """Return a description of tokens of a block that is equal for equal tokens."""
        if part.row < 0:
            return f"{part.name} {at} {tokens}"
        ids, block = self.ids(part.row), at // self._size
        source = str(self._own(ids[block])) if block < len(ids) else f"row {part.row}"
        return f"{source} {at % self._size} {tokens}"

    def _own(self, number: int) -> int:
        name = id_name(self._trace, number)
        if isinstance(name, str):
            hint = "kvsim trace anonymise numbers them"
            raise UsageError("ids that are texts are not edited", where=self._trace.source, hint=hint)
        return name


def _joined(parts: Sequence[_Part]) -> list[KindTokens]:
    """Return the segments of a prompt, neighbors of a kind together."""
    found: list[KindTokens] = []
    for part in parts:
        if found and found[-1].kind == part.kind:
            found[-1] = KindTokens(part.kind, found[-1].tokens + part.tokens)
        else:
            found.append(KindTokens(part.kind, part.tokens))
    return found
