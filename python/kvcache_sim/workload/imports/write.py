"""Logs of every kind as the lines of a trace: in order of arrival, times from the first request.

Detection tries the kinds in the order of ``KINDS``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.workload.imports import (
    aiperf,
    bench,
    cache_lines,
    client_logs,
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
from kvcache_sim.workload.imports.kind import LogKind, Reading
from kvcache_sim.workload.imports.known_formats import refuse_known
from kvcache_sim.workload.imports.naming import Imported, Notes
from kvcache_sim.workload.imports.token_counts import named
from kvcache_sim.workload.readers.format import read_head
from kvcache_sim.workload.readers.problems import located_errors, opened
from kvcache_sim.workload.toolbox.write import ms

_ALL = (
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


class _Row(NamedTuple):
    """A request of a log: its arrival, its number in the log, and its line but for the time."""

    arrival_ns: int
    order: int
    rest: str


class ImportedLog:
    """The requests of a log in order of arrival; ``lines`` are Mooncake rows with times from 0.

    Memory: the rows as text. Raises UsageError for a missing file or unknown kind, TraceError for a bad line.
    """

    def __init__(self, kind: LogKind, rows: list[_Row]) -> None:
        self.kind, self._rows = kind, sorted(rows)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._rows)

    def lines(self) -> Iterator[str]:
        """Yield one row per request."""
        start = self._rows[0].arrival_ns if self._rows else 0
        for row in self._rows:
            yield f'{{"timestamp": {ms(row.arrival_ns - start)}{row.rest}\n'


def import_log(path: str, name: str, reading: Reading) -> ImportedLog | None:
    """Read a log of the kind ``name``, "" for detection by its first bytes; None if it is a trace already."""
    source = opened(path, "log")
    with located_errors(path):
        kind = kind_named(name) if name else kind_of(read_head(source), path)
        if kind is None:
            return None
        ids = cached = asked = 0
        rows = []
        for order, row in enumerate(named(kind.read(source, reading), reading)):
            ids += len(row.ids)
            if "cached_tokens" in row.measured:
                cached, asked = cached + int(row.measured["cached_tokens"]), asked + row.input_tokens
            rows.append(_Row(row.arrival_ns, order, _text(row)))
    if not rows:
        left = sum(count for count, _ in reading.notes.left_out.values())
        hint = "; ".join(reading.notes.lines(path)[:2])
        raise TraceError(
            "no requests", where=path, got=f"{left} left out", expected="at least one", hint=hint
        )
    _remark(reading.notes, ids, cached, asked)
    return ImportedLog(kind, rows)


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
