"""Entry point of reading a trace: open, detect, read, order, number the blocks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec.structs import replace

from kvcache_sim._core import TraceSource
from kvcache_sim.base.errors import InputOutputError, TraceError, UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.values import Value
from kvcache_sim.workload.readers.findings import Finding, line_of, nothing_to_share, odd_times
from kvcache_sim.workload.readers.format import format_of, is_trace_alone, read_head
from kvcache_sim.workload.readers.json_rows import guessed_block
from kvcache_sim.workload.readers.problems import located_errors, opened, trace_error
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.readers.stream import RowStream, RowWindows, TraceStream
from kvcache_sim.workload.readers.turns import head_has_whole_prompts, stated_meaning, with_whole_prompts
from kvcache_sim.workload.rows import PART_REFERENCES
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache_sim._core import RawColumns, TraceRows
    from kvcache_sim.workload.readers.format import TraceFormat

_DEFAULT = ReadSettings()
_Stream = TypeVar("_Stream")

#: Traces up to this number of rows, or of block ids in rows, are always read whole.
WHOLE_ROWS = 1 << 16
WHOLE_REFERENCES = 1 << 23
ALL_ROWS = 1 << 62


class Reading(Value):
    """A trace with the notes and problems of reading it."""

    trace: Trace
    format: str
    #: The first skipped rows with their errors; ``skipped`` counts all, by kind.
    problems: tuple[TraceError, ...]
    skipped: dict[str, int]
    findings: tuple[Finding, ...]
    lines: int


def read_trace(path: str | os.PathLike[str], *, settings: ReadSettings = _DEFAULT) -> Trace:
    """Return the requests of a trace file, ``-`` for standard input.

    Plain, gzip and zstandard files are detected by their content. Raises ``UsageError`` for a missing file,
    ``InputOutputError`` for an unreadable file, ``TraceError`` for invalid data.
    """
    return read_report(path, settings=settings).trace


def read_report(path: str | os.PathLike[str], *, settings: ReadSettings = _DEFAULT) -> Reading:
    """Return the trace with the skipped rows, by kind, and every note; raises as ``read_trace``."""
    name = os.fspath(path)
    where = "standard input" if name == "-" else name
    source = _open(name, settings)
    with located_errors(where):
        chosen, settings = _format_of(source, where, settings)
        raw = chosen.read(source, settings)
        digest = source.sha256()
    return _report(where, chosen.name, raw, settings, digest)


def open_trace(path: str | os.PathLike[str], settings: ReadSettings) -> Trace | TraceStream:
    """Return the requests of a trace, as a stream if there are many and they are independent.

    Condition: more than WHOLE_ROWS rows of a format that is read row by row, in time order, without skipped
    rows. Raises as ``read_trace``.
    """
    return _opened(path, settings, lambda rows: rows.read(WHOLE_ROWS + 1) and rows.alone, TraceStream)


def open_rows(path: str | os.PathLike[str], settings: ReadSettings) -> Trace | RowStream:
    """Return the requests of a trace, or its rows one by one if it is sampled or has many ids.

    Many are more than WHOLE_REFERENCES. The same further conditions as of ``open_trace``, but rows may have
    sessions. Raises as ``read_trace``.
    """

    def is_long(rows: TraceRows) -> bool:
        sampled = settings.sample is not None
        return sampled or (rows.buffer(WHOLE_REFERENCES + 1) and rows.needs_whole is None)

    streamed = replace(settings, extra_keys=(), prefixes=None)
    whole = replace(settings, sample=None)
    return (
        read_trace(path, settings=whole)
        if streamed != settings
        else _opened(path, streamed, is_long, RowStream)
    )


def open_windows(path: str | os.PathLike[str], settings: ReadSettings) -> Trace | RowWindows:
    """Return the requests of a trace, or some rows at a time if it has more than PART_REFERENCES ids.

    The same further conditions as of ``open_trace``, but rows may have sessions and wait for others. No
    digest is computed. Raises as ``read_trace``.
    """
    return _opened(
        path,
        replace(settings, digest=False),
        lambda rows: rows.buffer(PART_REFERENCES + 1) and not rows.new_input_only,
        RowWindows,
    )


def _opened(
    path: str | os.PathLike[str],
    settings: ReadSettings,
    is_long: Callable[[TraceRows], bool],
    stream: Callable[[str, TraceRows, int, bool], _Stream],
) -> Trace | _Stream:
    name = os.fspath(path)
    where = "standard input" if name == "-" else name
    source = _open(name, settings)
    with located_errors(where):
        chosen, settings = _format_of(source, where, settings)
        strict = settings.on_bad_row == "error" and settings.time_order == "error"
        strict = strict and not _may_be_new_turns(chosen, read_head(source), settings)
        stated = chosen.replay_rows if stream is RowStream and settings.sample is None else None
        row_reader = chosen.rows or stated
        if row_reader is None or not strict:
            raw = chosen.read(source, replace(settings, sample=None))
            return _report(where, chosen.name, raw, settings, source.sha256()).trace
        block_size = chosen.block_of(read_head(source), settings)
        guessed = settings.block_size is None and block_size != chosen.block_size and stated is None
        rows = row_reader(source, settings if stated else replace(settings, block_size=block_size))
        if is_long(rows):
            return stream(where, rows, rows.block_size or block_size, guessed)
        rows.read(ALL_ROWS)
        block_size = rows.block_size or block_size
        raw, source = rows.finish()
        raw["block_size"] = block_size
        if guessed:
            raw["findings"].append(guessed_block(block_size, len(raw["arrival_ns"])))
        return _report(where, chosen.name, raw, settings, source.sha256()).trace


def _format_of(source: TraceSource, where: str, settings: ReadSettings) -> tuple[TraceFormat, ReadSettings]:
    """Return the format, and the settings with the meaning of later rows if that is known before reading."""
    head = read_head(source)
    if not head:
        source.read(1)  # distinguishes damaged data from an empty file
    if settings.format is None and not is_trace_alone(head):
        from kvcache_sim.workload.imports.recognize import refuse_log

        refuse_log(head, where)
    chosen = format_of(head, where, settings.format)
    return chosen, replace(settings, turns=stated_meaning(chosen, head, settings.turns))


def _may_be_new_turns(chosen: TraceFormat, head: bytes, settings: ReadSettings) -> bool:
    """Return True if rows may hold their new turn alone: then they are read whole."""
    if settings.turns is not None:
        return settings.turns == "delta"
    return chosen.name == "parquet" or (b'"delay"' in head and not head_has_whole_prompts(head))


def _open(name: str, settings: ReadSettings) -> TraceSource:
    if name != "-":
        if "\0" in name or not name:
            raise UsageError(
                "not a file name", got=repr(name), expected="a trace file, or - for standard input"
            )
        if os.path.isdir(name):
            raise InputOutputError("is a directory", where=name, expected="a trace file")
    try:
        source = opened(name, "trace")
    except UsageError as missing:
        missing.hint = _nearest(name)
        raise
    if not settings.digest:
        source.without_digest()
    return source


def _nearest(name: str) -> str:
    """Return a hint with the most similar file names in the directory of a missing file."""
    directory, base = os.path.split(name)
    try:
        names = sorted(os.listdir(directory or "."))[:10_000]
    except OSError:
        return f"there is no directory {directory}" if directory else ""
    close = close_matches(base, names, 3, 0.5)
    return "did you mean " + " or ".join(os.path.join(directory, n) for n in close) + "?" if close else ""


def _report(where: str, format_name: str, raw: RawColumns, settings: ReadSettings, digest: str) -> Reading:
    problems = tuple(trace_error(where, p) for p in raw["problems"])
    skipped = dict(raw["problem_counts"])
    total = sum(skipped.values())
    if not len(raw["arrival_ns"]):
        first = f"first {problems[0]}" if problems else ""
        got = f"{total} rows skipped" if total else "no rows"
        raise TraceError("no requests", where=where, got=got, expected="at least one request", hint=first)
    findings = [Finding(*f) for f in raw["findings"]]
    columns: dict[str, Any] = {**raw}
    members = {name: columns[name] for name in Trace.__struct_fields__ if name in columns}
    trace = Trace(**members, source=where, sha256=digest)
    if raw["new_input_only"]:
        from kvcache_sim.workload.missing_ids import with_history

        trace = with_history(trace)
    else:
        trace, findings = with_whole_prompts(trace, settings.turns, findings)
    warnings = [line_of(where, f) for f in findings]
    if total:
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        warnings.insert(0, f"{where}: {total} rows skipped ({kinds}); first {problems[0]}")
    noticed = odd_times(trace)
    if settings.prefixes is None:
        noticed += nothing_to_share(trace)
    findings += noticed
    warnings += [line_of(where, f) for f in noticed]
    if settings.prefixes is not None:
        from kvcache_sim.workload.synthetic_prefixes import with_synthetic_prefixes

        trace = with_synthetic_prefixes(trace, settings.prefixes)
        warnings += trace.warnings
    if settings.missing_ids == "fill" and bool(np.any(np.diff(trace.id_offsets) == 0)):
        from kvcache_sim.workload.missing_ids import fill_missing_ids

        trace = fill_missing_ids(trace)
    if raw["unordered"] and settings.time_order == "sort":
        from kvcache_sim.workload.rows import select_rows

        trace = select_rows(trace, np.argsort(trace.arrival_ns, kind="stable"))
    if settings.extra_keys:
        from kvcache_sim.workload.members import with_extra_keys

        trace = with_extra_keys(trace, settings.extra_keys)
        trace = trace if settings.keep_unknown else replace(trace, extra=[])
    trace = replace(trace, warnings=tuple(warnings))
    return Reading(trace, format_name, problems, skipped, tuple(findings), raw["lines"])
