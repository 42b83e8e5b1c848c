"""Logs of every kind as the lines of a trace: in order of arrival, times from the first request.

Detection tries the kinds in the order of ``KINDS``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports import (
    agent_counts,
    aiperf,
    bench,
    cache_lines,
    claude_code,
    client_logs,
    codex,
    dynamo,
    gateways,
    kv_events,
    lmcache_lookups,
    openai_log,
    prometheus,
    sglang_log,
    spans,
    vllm_log,
)
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.known_formats import refuse_known
from kvcache_sim.workload.imports.naming import Imported, Logged, Notes
from kvcache_sim.workload.imports.token_counts import named
from kvcache_sim.workload.imports.turns import Turn, in_sessions, requests_of
from kvcache_sim.workload.readers.format import read_head
from kvcache_sim.workload.readers.problems import located_errors, opened
from kvcache_sim.workload.toolbox.write import ms

_ALL = (
    claude_code.KIND,
    codex.KIND,
    *agent_counts.KINDS,
    dynamo.KIND,
    aiperf.KIND,
    bench.KIND,
    *kv_events.KINDS,
    lmcache_lookups.KIND,
    sglang_log.KIND,
    *cache_lines.KINDS,
    vllm_log.KIND,
    prometheus.KIND,
    spans.KIND,
    *client_logs.KINDS,
    *gateways.KINDS,
    openai_log.KIND,
)

KINDS: dict[str, LogKind] = {kind.name: kind for kind in _ALL}


def kind_named(name: str) -> LogKind:
    """Return a kind of log by name; UsageError for an unknown name."""
    if name not in KINDS:
        raise UsageError("unknown kind of log", where="--from", got=repr(name), expected=" | ".join(KINDS))
    return KINDS[name]


def kind_of(head: bytes, where: str) -> LogKind | None:
    """Return the kind of a log by its first bytes, None for a trace; TraceError if neither is detected."""
    from kvcache_sim.workload.readers.format import SIGNS

    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise TraceError("an empty log", where=where, expected="at least one request")
    for kind in KINDS.values():
        if kind.detect(text):
            return kind
    if any(matches(text) for matches in SIGNS.values()):
        return None
    refuse_known(text, where)
    shown = text.split(b"\n", 1)[0][:60].decode("utf-8", "replace")
    raise TraceError(
        "no known kind of log", where=f"{where}:1", got=shown, hint=f"name it with --from: {', '.join(KINDS)}"
    )


#: Logs further apart have different clocks: ten years.
_LONGEST_NS = 10 * 366 * 86_400 * NS_PER_S


class _Row(NamedTuple):
    """A request of a log: its arrival, its number in the log, and its line but for the time."""

    arrival_ns: int
    order: int
    rest: str


class ImportedLog:
    """The requests of logs in order of arrival; ``lines`` are Mooncake rows with times from 0.

    ``kind`` is that of the first log, ``names`` has those of all, ``said`` the lines of notes. Memory: the
    rows as text.
    """

    def __init__(self, kinds: list[LogKind], rows: list[_Row], said: list[str]) -> None:
        self.kind, self.said, self._rows = kinds[0], said, sorted(rows)
        self.names = ", ".join(dict.fromkeys(kind.name for kind in kinds))

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._rows)

    def lines(self) -> Iterator[str]:
        """Yield one row per request."""
        yield from _lines(self._rows)


def trace_lines(requests: Iterable[Imported]) -> Iterator[str]:
    """Yield the rows of a trace of requests, in order of arrival, with times from 0."""
    rows = [_Row(each.arrival_ns, number, _text(each)) for number, each in enumerate(requests)]
    yield from _lines(sorted(rows))


def _lines(rows: Sequence[_Row]) -> Iterator[str]:
    for row in rows:
        yield f'{{"timestamp": {ms(row.arrival_ns - rows[0].arrival_ns)}{row.rest}\n'


def import_logs(paths: Sequence[str], name: str, reading: Reading) -> ImportedLog | None:
    """Read logs of the kind ``name``, "" for detection by their first bytes, and all logs of folders.

    Conversations continue from file to file. Returns None for a single file that is a trace already. Raises
    UsageError for a missing file or unknown kind, TraceError for a bad line or if nothing is a request.
    """
    logs = _Logs(reading)
    try:
        for path in paths:
            if path != "-" and Path(path).is_dir():
                logs.read_folder(path, name)
            elif not logs.read(path, name, len(paths) > 1):
                return None
        return logs.imported(paths[0] if len(paths) == 1 else f"{len(paths)} logs")
    except TraceError:
        if logs.kinds == [openai_log.KIND] and not name and "-" not in paths:  # its signs are general
            refuse_known(read_head(opened(paths[-1], "log")), paths[-1])
        raise


def logs_of(folder: str) -> list[tuple[str, LogKind | None]]:
    """Return the files of a folder and of those in it, each with its kind; None for what is no log."""
    files = []
    for file in sorted(each for each in Path(folder).rglob("*") if each.is_file()):
        kind = None
        with located_errors(str(file)), suppress(TraceError):
            kind = kind_of(read_head(opened(str(file), "log")), str(file))
        files.append((str(file), kind))
    return files


def others_said(folder: str, others: Sequence[str]) -> list[str]:
    """Return the line that counts the files of a folder that were not read."""
    names = ", ".join(Path(each).name for each in others[:3])
    return [f"{folder}: {len(others):,} files are no such logs: {names} …"] if others else []


class _Logs:
    """Logs on one clock. Each has notes of its own; a single file's, and those on all, are the caller's."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.kinds: list[LogKind] = []
        self._rows: list[_Row] = []
        self._turns: list[Turn] = []
        self._said: list[str] = []
        #: Ids of blocks; prompt tokens that were cached, of those of requests that say so.
        self._ids = self._cached = self._asked = 0

    def read(self, path: str, name: str, is_one_of_many: bool) -> bool:
        """Read a log; False if it is a trace, which is refused among other files."""
        source = opened(path, "log")
        with located_errors(path):
            kind = kind_named(name) if name else kind_of(read_head(source), path)
            if kind is None and is_one_of_many:
                raise TraceError("a trace among logs", where=path, hint="kvsim trace merge joins traces")
            if kind is None:
                return False
            self.kinds.append(kind)
            reading = replace(self._reading, notes=Notes()) if is_one_of_many else self._reading
            before = len(self._rows) + len(self._turns)
            for row in named(self._without_turns(kind.read(source, reading), path), reading):
                self._add(row)
        self._reading.own_block = False
        if is_one_of_many:
            count = len(self._rows) + len(self._turns) - before
            self._said += [f"{path}: {kind.name}, {count:,} requests", *reading.notes.lines(path)]
        return True

    def _without_turns(self, requests: Requests, path: str) -> Iterator[tuple[int, Imported | Logged]]:
        """Yield what is no turn of a conversation; keep the turns, whose prompts other files may continue."""
        for line, row in in_sessions(requests, path, self._reading.notes):
            if isinstance(row, Turn):
                self._turns.append(row)
            else:
                yield line, row

    def read_folder(self, path: str, name: str) -> None:
        """Read every log of a folder and of those in it; the other files are counted."""
        found = logs_of(path)
        others = [file for file, kind in found if kind is None or name not in ("", kind.name)]
        for file, kind in found:
            if kind is not None and file not in others:
                self.read(file, kind.name, True)
        self._said += others_said(path, others)

    def imported(self, where: str) -> ImportedLog:
        """Return the requests of all that was read."""
        notes = self._reading.notes
        turns = ((0, logged) for logged in requests_of(self._turns, notes))
        for row in named(turns, self._reading) if self._turns else ():
            self._add(row)
        if not self._rows:
            left = sum(count for count, _ in notes.left_out.values())
            hint = "; ".join([*self._said, *notes.lines(where)][:2])
            raise TraceError(
                "no requests", where=where, got=f"{left} left out", expected="at least one", hint=hint
            )
        times = [row.arrival_ns for row in self._rows]
        if len(self.kinds) > 1 and max(times) - min(times) > _LONGEST_NS:
            what = "logs that have no clock in common: some have no year, or none at all"
            raise TraceError(what, where=where, hint="import them one by one; kvsim trace merge joins traces")
        _remark(notes, self._ids, self._cached, self._asked)
        return ImportedLog(self.kinds, self._rows, [*self._said, *notes.lines(where)])

    def _add(self, row: Imported) -> None:
        self._ids += len(row.ids)
        if "cached_tokens" in row.measured:
            self._cached += int(row.measured["cached_tokens"])
            self._asked += row.input_tokens
        self._rows.append(_Row(row.arrival_ns, len(self._rows), _text(row)))


def _remark(notes: Notes, ids: int, cached: int, asked: int) -> None:
    """Note the cached share that the log counts, and that a log without ids shows no sharing."""
    if asked:
        share = f"{cached:,} of {asked:,} prompt tokens, {cached / asked:.1%}"
        notes.remark(f"cached when the log was written: {share}")
    if not ids:
        notes.remark(
            "no block ids: lengths only, sharing is not in them (--synthesise-prefixes assumes some)"
        )


def _text(row: Imported) -> str:
    parts = [f', "input_length": {row.input_tokens}, "output_length": {row.output_tokens}']
    if row.ids:
        parts.append(f', "hash_ids": {json.dumps(row.ids)}')
    if row.named_tokens:
        parts.append(f', "named_length": {row.named_tokens}')
    if row.session:
        parts.append(f', "session_id": "{row.session}"')
    for name, value in row.measured.items():
        parts.append(f', "{name}": {json.dumps(int(value) if value == int(value) else value)}')
    if row.segments:
        parts.append(f', "segments": {json.dumps(row.segments)}')
    return "".join(parts) + "}"
