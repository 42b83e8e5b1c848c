"""From a path to the columns of a trace: open, detect, read, order, number the blocks."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvcache_sim._core import TraceProblem, TraceSource
from kvcache_sim.errors import InputOutputError, TraceError, UsageError
from kvcache_sim.workload.readers.detect import check_text, detect_format
from kvcache_sim.workload.readers.detect_head import read_head
from kvcache_sim.workload.readers.registry import format_named
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.trace import NO_SESSION, Trace

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns

_DEFAULT = ReadSettings()


@dataclass(frozen=True, slots=True)
class Finding:
    """A counted remark of the reader: its kind, how often, the first line, and a sentence."""

    kind: str
    count: int
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A trace with everything that was noticed while reading it."""

    trace: Trace
    format: str
    #: The first skipped rows, as they would have been refused; ``skipped`` counts all, by kind.
    problems: tuple[TraceError, ...]
    skipped: dict[str, int]
    findings: tuple[Finding, ...]
    lines: int


def read_trace(path: str | os.PathLike[str], *, settings: ReadSettings = _DEFAULT) -> Trace:
    """Return the requests of a trace file, ``-`` for standard input.

    Plain, gzip and zstandard files are told apart by their content. Raises ``UsageError`` for a missing
    file, ``InputOutputError`` for one that cannot be read, ``TraceError`` for data that cannot be trusted.
    """
    return read_report(path, settings=settings).trace


def read_report(path: str | os.PathLike[str], *, settings: ReadSettings = _DEFAULT) -> Reading:
    """Return the trace with the rows skipped, by kind, and every remark; raises as ``read_trace``."""
    name = os.fspath(path)
    where = "standard input" if name == "-" else name
    source = _open(name)
    try:
        head = read_head(source)
        if not head:
            source.read(1)  # tells damaged data from an empty file
        check_text(head, where)
        chosen = format_named(settings.format) if settings.format else detect_format(head, where)
        raw = chosen.read(source, settings)
        digest = source.sha256()
    except TraceProblem as problem:
        raise _trace_error(where, problem.args) from None
    except OSError as error:
        raise _unreadable(where, error) from None
    return _report(where, chosen.name, raw, settings, digest)


def _open(name: str) -> TraceSource:
    if name != "-":
        if "\0" in name or not name:
            raise UsageError(
                "not a file name", got=repr(name), expected="a trace file, or - for standard input"
            )
        if os.path.isdir(name):
            raise InputOutputError("is a directory", where=name, expected="a trace file")
    try:
        return TraceSource(name)
    except FileNotFoundError:
        raise UsageError("trace not found", where=name, hint=_nearest(name)) from None
    except OSError as error:
        raise _unreadable(name, error) from None


def _unreadable(where: str, error: OSError) -> InputOutputError:
    return InputOutputError(
        "cannot be read", where=where, got=os.strerror(error.errno) if error.errno else str(error)
    )


def _nearest(name: str) -> str:
    """Return the names most like a missing one in its directory, as a hint."""
    from difflib import get_close_matches

    directory, base = os.path.split(name)
    try:
        names = sorted(os.listdir(directory or "."))[:10_000]
    except OSError:
        return f"there is no directory {directory}" if directory else ""
    close = get_close_matches(base, names, 3, 0.5)
    return "did you mean " + " or ".join(os.path.join(directory, n) for n in close) + "?" if close else ""


def _trace_error(where: str, parts: tuple[object, ...]) -> TraceError:
    line, col, _kind, what, got, expected, hint = parts
    place = where + (f":{line}" if line else "") + (f":{col}" if line and col else "")
    return TraceError(str(what), where=place, got=str(got), expected=str(expected), hint=str(hint))


def _report(where: str, format_name: str, raw: RawColumns, settings: ReadSettings, digest: str) -> Reading:
    problems = tuple(_trace_error(where, p) for p in raw["problems"])
    skipped = dict(raw["problem_counts"])
    total = sum(skipped.values())
    if not len(raw["arrival_ns"]):
        first = f"first {problems[0]}" if problems else ""
        got = f"{total} rows skipped" if total else "no rows"
        raise TraceError("no requests", where=where, got=got, expected="at least one request", hint=first)
    findings = [Finding(*f) for f in raw["findings"]]
    warnings = [_line(where, f) for f in findings]
    if total:
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        warnings.insert(0, f"{where}: {total} rows skipped ({kinds}); first {problems[0]}")
    trace = Trace(
        arrival_ns=raw["arrival_ns"],
        input_tokens=raw["input_tokens"],
        output_tokens=raw["output_tokens"],
        id_offsets=raw["id_offsets"],
        block_ids=raw["block_ids"],
        block_size=raw["block_size"],
        session=raw["session"],
        turn=raw["turn"],
        think_ns=raw["think_ns"],
        is_conversational_turn=raw["is_conversational_turn"],
        id_names=raw["id_names"],
        session_names=raw["session_names"],
        extra=raw["extra"],
        after=raw["after"],
        history_tokens=raw["history_tokens"],
        source=where,
        sha256=digest,
    )
    if raw["new_input_only"]:
        from kvcache_sim.workload.history import with_history

        trace = with_history(trace)
    noticed = [*odd_times(trace), *nothing_to_share(trace)]
    findings += noticed
    warnings += [_line(where, f) for f in noticed]
    if settings.missing_ids == "fill" and bool(np.any(np.diff(trace.id_offsets) == 0)):
        from kvcache_sim.workload.missing_ids import fill_missing_ids

        trace = fill_missing_ids(trace)
    if raw["unordered"] and settings.time_order == "sort":
        from kvcache_sim.workload.rows import select_rows

        trace = select_rows(trace, np.argsort(trace.arrival_ns, kind="stable"))
    trace = replace(trace, warnings=tuple(warnings))
    return Reading(trace, format_name, problems, skipped, tuple(findings), raw["lines"])


def _line(where: str, finding: Finding) -> str:
    return f"{where}:{finding.line}: {finding.text}" if finding.line else f"{where}: {finding.text}"


HIT_RATES_NEED_IDS = "the rows name no blocks and no sessions: hit rates need ids"


def nothing_to_share(trace: Trace) -> list[Finding]:
    """Return a remark on a trace that names neither blocks nor sessions: nothing in it can be reused."""
    if len(trace.block_ids) or bool(np.any(trace.session != NO_SESSION)):
        return []
    text = f"{HIT_RATES_NEED_IDS}; without any every prompt counts as one of its own"
    return [Finding("nothing-to-share", len(trace), 0, text)]


#: Arrivals outside these mean rates (requests a second) are likely given in another unit.
_FASTEST_PER_S = 100.0
_SLOWEST_PER_S = 1 / 3_600.0
_YEAR_NS = 31_557_600 * 10**9


def odd_times(trace: Trace) -> list[Finding]:
    """Return remarks on arrivals that look like another unit, one moment, or dates."""
    open_loop = trace.arrival_ns[trace.think_ns < 0]
    n = len(open_loop)
    found: list[Finding] = []
    if n == 0:
        return found
    first, last = int(open_loop.min()), int(open_loop.max())
    if n > 1 and first == last:
        found.append(Finding("equal-times", n, 0, f"all {n} requests arrive at the same time"))
    elif n >= 100:
        rate = (n - 1) / ((last - first) / 1e9)
        if rate > _FASTEST_PER_S:
            text = f"{rate:,.0f} requests/s on average: the times look like seconds read as ms"
            found.append(Finding("units", n, 0, text))
        elif rate < _SLOWEST_PER_S:
            text = f"one request in {1 / rate:,.0f} s on average: the times look like us or ns read as ms"
            found.append(Finding("units", n, 0, text))
    if first > _YEAR_NS:
        text = (
            f"the first request arrives {first / _YEAR_NS:.1f} years after time 0: the times look like dates"
        )
        found.append(Finding("units", 1, 0, text))
    return found
