"""Logs of agents as calls: the readers of ``kvsim trace import``; a call states what it adds to another."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.extras.session.calls import Call, Conversation, Counts, History, Label, Segment, blocks_of
from kvcache_sim.workload.imports.kind import LogKind, Reading
from kvcache_sim.workload.imports.naming import Naming, Notes
from kvcache_sim.workload.imports.turns import Details, Piece, Turn, in_sessions
from kvcache_sim.workload.imports.write import KINDS, kind_of, logs_of, others_said
from kvcache_sim.workload.readers.format import read_head
from kvcache_sim.workload.readers.problems import located_errors, opened

#: Logs whose calls have counts of a provider's cache, call by call.
AGENTS = ("claude-code", "codex", "tracelab")
#: Tools and system of a log that does not have them.
_UNKNOWN_HEAD = (Segment("system"),)
_LATE = ("tools_changed", "system_changed")


class Loaded(Value):
    """The calls of logs in order of time, and what is to be said of the logs, a line each."""

    calls: tuple[Call, ...]
    said: tuple[str, ...] = ()


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Search for no cycles: what is read has none, and the search takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_cycles()
def load_calls(paths: Sequence[str], skips: bool = False) -> Loaded:
    """Return the calls of logs.

    Args:
        paths: Files, folders (with those in them) and patterns such as ``*.jsonl``.
        skips: Count bad lines instead of refusing the first.

    Raises:
        UsageError: No such file, or nothing that a pattern names.
        TraceError: A bad line, a log of another kind, or no calls.
    """
    said: list[str] = []
    turns: list[Turn] = []
    left_out = Counter[str]()
    for path, kind in log_files(paths, said):
        notes, source = Notes(), opened(path, "log")
        source.without_digest()
        with located_errors(path):
            rows = kind.read(source, Reading(Naming(16, b"-"), notes, skips))
            turns += [row for _, row in in_sessions(rows, path, notes) if isinstance(row, Turn)]
        for reason, (count, _) in notes.left_out.items():
            left_out[reason] += count
        said += [f"{path}: {remark}" for remark in notes.remarks]
    said += [f"{count:,} left out: {reason}" for reason, count in left_out.items()]
    if not turns:
        expected = "at least one call with its provider's counts"
        raise TraceError("no calls", where=" ".join(paths), expected=expected, hint="; ".join(said[:2]))
    chains, made, heads = _Chains(), dict[int, tuple[Segment, ...]](), dict[str, tuple[Segment, ...]]()
    for turn in turns:  # what is stated after some calls was theirs too
        if turn.details is not None and turn.details.head:
            if id(turn.details.head) not in made:
                made[id(turn.details.head)] = _segments(turn.details.head)
            if _kinds(heads.get(turn.session, ())) < _kinds(made[id(turn.details.head)]):
                heads[turn.session] = made[id(turn.details.head)]
    turns.sort(key=lambda turn: turn.at_ns)
    turns.reverse()
    while turns:  # each is freed once it is a call
        turn = turns.pop()
        if turn.details is not None:
            head, whole = made.get(id(turn.details.head), ()), heads.get(turn.session, ())
            chains.take(turn, turn.details, whole if _kinds(head) < _kinds(whole) else head)
    if chains.copies:
        said.append(f"{chains.copies:,} calls are copies of another session's: counted once")
    return Loaded(tuple(chains.calls.values()), tuple(said))


def log_files(paths: Sequence[str], said: list[str]) -> Iterator[tuple[str, LogKind]]:
    """Yield each log with its kind; files of folders that are none are counted in ``said``."""
    for path in paths:
        named = (
            [path] if path == "-" or (path and Path(path).exists()) else sorted(glob(path, recursive=True))
        )
        if not named:
            raise UsageError("log not found", where=path or "LOG")
        for each in named:
            if each != "-" and Path(each).is_dir():
                found = logs_of(each)
                said += others_said(each, [file for file, kind in found if not _is_agents(kind)])
                yield from ((file, kind) for file, kind in found if kind is not None and _is_agents(kind))
                continue
            kind = kind_of(read_head(opened(each, "log")), each)
            if kind is None or not _is_agents(kind):
                got = "a trace" if kind is None else kind.help
                expected = ", ".join(KINDS[name].help for name in AGENTS)
                raise TraceError("no agent's log", where=each, got=got, expected=expected)
            yield each, kind


def _is_agents(kind: LogKind | None) -> bool:
    return kind is not None and kind.name in AGENTS


@dataclass(slots=True)
class _Chains:
    """Makes calls of turns in order of time.

    A label may name a change of tools or system that a later snapshot shows: ``_changed`` has the
    conversations that wait for it, ``_same`` its head and the one that it is taken for; ``_shown`` the last.
    ``_of_line`` finds the call of a line, ``_heads`` a call's tools and system, ``_last`` the last
    call of a conversation, ``_copied`` that of a call whose lines another log copies.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    copies: int = 0
    _of_line: dict[str, str] = field(default_factory=dict)
    _heads: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    _last: dict[str, str] = field(default_factory=dict)
    _copied: dict[str, str] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _same: dict[str, tuple[tuple[Segment, ...], tuple[Segment, ...]]] = field(default_factory=dict)
    _shown: dict[str, tuple[Segment, ...]] = field(default_factory=dict)

    def take(self, turn: Turn, details: Details, head: tuple[Segment, ...]) -> None:
        """Add the call of a turn, unless it is a copy: then its conversation continues from it.

        ``head`` has its tools and system where the log has them.
        """
        if turn.call in self._copied:
            self.copies += 1
            self._last[turn.session] = self._copied[turn.call]
            return
        name = details.id
        while name in self.calls:
            name += "+"
        before = self._of_line.get(details.parent) or self._last.get(turn.session, "")
        was = self._heads.get(before, _UNKNOWN_HEAD)
        if head != self._shown.get(turn.session, head) and turn.session in self._changed:
            self._changed.discard(turn.session)
            self._same[turn.session] = head, was
        shown, same = self._same.get(turn.session, ((), ()))
        self._shown[turn.session] = head
        self._heads[name] = (same if head and head == shown else head) or was
        if self._heads[name] == was and details.label is not None and details.label[0] in _LATE:
            self._changed.add(turn.session)
        self.calls[name] = self._call(name, turn, details, before)
        self._last[turn.session] = name
        if turn.call:
            self._copied[turn.call] = name
        self._of_line |= dict.fromkeys([name, details.id, *details.lines], name)

    def _call(self, name: str, turn: Turn, details: Details, before: str) -> Call:
        read, written = turn.cached_tokens or 0, sum(details.written.values())
        history, begins = self._history(name, before, details.event)
        output = turn.output_tokens
        return Call(
            name,
            turn.at_ns,
            max(details.first_ns, turn.at_ns),
            turn.model,
            Conversation(
                details.provider, "", turn.session.split(" ")[0], turn.session, turn.is_side, details.folder
            ),
            Counts(
                read,
                turn.input_tokens - read - written,
                details.written.get("5m", 0),
                details.written.get("1h", 0),
                output,
            ),
            history,
            (*begins, *_segments(turn.added)),
            _segments(details.answer),
            None if details.label is None else Label(*details.label),
            details.parameters,
        )

    def _history(self, name: str, before: str, event: str) -> tuple[History, tuple[Segment, ...]]:
        """Return how a prompt begins, and the blocks of it that no earlier call has."""
        head = self._heads[name]
        if not before:
            return History(event=event), head
        was, is_anew = self._heads[before], event == "compaction"
        if head == was:
            return History(before, len(head) if is_anew else None, event), ()
        return History(before, 0, event), head if is_anew else (
            *head,
            *blocks_of(self.calls, before)[len(was) :],
        )


def _kinds(head: Sequence[Segment]) -> set[str]:
    return {each.kind for each in head}


def _segments(pieces: Sequence[Piece]) -> tuple[Segment, ...]:
    return tuple(Segment(piece.kind, piece.name, piece.size_bytes) for piece in pieces)
