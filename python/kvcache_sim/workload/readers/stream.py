"""A trace that is read while it is simulated: a window of rows at a time, in constant memory."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError
from kvcache_sim.workload.context_window import ContextTokens, with_answers_in_context
from kvcache_sim.workload.readers.findings import Finding, line_of, odd_span, odd_times, open_span
from kvcache_sim.workload.readers.json_rows import guessed_block
from kvcache_sim.workload.readers.problems import located_errors
from kvcache_sim.workload.rows import PART_REFERENCES
from kvcache_sim.workload.trace import COLUMNS, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcache_sim._core import CurveSample, CurveStack, OnlineReplays, RawColumns, RowColumns, TraceRows

#: Rows per window after the first one.
WINDOW_ROWS = 1 << 16


class NotAlone(TraceError):
    """A row of a session, or one that waits for another row, in a trace that is read in windows."""


class NeedsWhole(TraceError):
    """A row that cannot be replayed without rows after it, in a trace that is read row by row."""


class _Rows:
    """Rows that are read once; ``warnings`` are available afterwards."""

    def __init__(self, where: str, rows: TraceRows, block_size: int, guessed: bool) -> None:
        self._rows, self._guessed = rows, guessed
        self.source, self.block_size = where, block_size
        self.warnings: tuple[str, ...] = ()

    def watch(self, watch: Callable[[int, int, int], None]) -> None:
        """Call ``watch`` at intervals with the bytes, references and, in a replay, distinct ids so far.

        Bytes are decompressed ones. An error that it raises ends the reading.
        """
        self._rows.watch(watch)


class RowStream(_Rows):
    """The requests of a trace for a replay that takes them row by row; rows are not stored.

    ``sha256`` and ``warnings`` are available after the replay.
    """

    sha256 = ""

    @property
    def header(self) -> Trace:
        """The trace without its rows."""
        none, few = np.empty(0, np.int64), np.empty(0, np.int32)
        ids, flags = np.empty(0, np.uint32), np.empty(0, np.bool_)
        offsets = np.zeros(1, np.int64)
        return Trace(
            none, none, none, offsets, ids, self.block_size, few, few, none, flags, source=self.source
        )

    def feed(self, replay: CurveStack | CurveSample | OnlineReplays) -> None:
        """Give every row to a replay; raises NeedsWhole, and as ``read_trace``."""
        with located_errors(self.source):
            if not replay.feed(self._rows):
                raise NeedsWhole(
                    "the trace is too long to be replayed from a pipe",
                    where=self.source,
                    got=str(self._rows.needs_whole),
                    hint="give it as a file: then it is read whole",
                )
            raw, source = self._rows.finish()
            self.sha256 = source.sha256()
        self.warnings = _notes(self.source, raw, replay.totals[0], self.block_size if self._guessed else None)


def _notes(where: str, raw: RawColumns, rows: int, guessed_size: int | None) -> tuple[str, ...]:
    """Return the notes of reading; ``guessed_size`` is the block size if that was guessed."""
    findings = [Finding(*found) for found in raw["findings"]]
    if guessed_size is not None:
        findings.append(Finding(*guessed_block(guessed_size, rows)))
    return tuple(line_of(where, finding) for finding in findings)


class RowWindows(_Rows):
    """The rows of a trace for a transform that writes them as they come: some rows at a time, once.

    Ids are numbered as in the whole trace; ``after`` counts its rows. ``requests``, ``last_ns`` (the last
    arrival), ``distinct_ids`` and ``warnings`` are of the rows so far, complete after the last.
    """

    requests = last_ns = distinct_ids = 0

    def __iter__(self) -> Iterator[Trace]:
        """Yield the rows in order; raises as ``read_trace``."""
        names: list[str] = []
        arrivals, first = 0, 1 << 63
        while True:
            with located_errors(self.source):
                self._rows.buffer(PART_REFERENCES)
                columns: dict[str, Any] = {**self._rows.take()}
                names += self._rows.session_names(len(names))
            members = {
                name: columns[name] for name in (field.name for field in fields(Trace)) if name in columns
            }
            part = Trace(**members | {"session_names": names}, block_size=self.block_size, source=self.source)
            if not len(part):
                break
            span = open_span(part)
            arrivals, first = arrivals + span[0], min(first, span[1]) if span[0] else first
            self.last_ns = max(self.last_ns, span[2])
            self.requests += len(part)
            self.distinct_ids = max(self.distinct_ids, part.distinct_ids)
            yield part
        with located_errors(self.source):
            raw, _ = self._rows.finish()
        notes = _notes(self.source, raw, self.requests, self.block_size if self._guessed else None)
        odd = odd_span(arrivals, first, self.last_ns)
        self.warnings = (*notes, *(line_of(self.source, finding) for finding in odd))

    def names(self, part: Trace) -> NDArray[np.uint64] | list[str] | list[int]:
        """Return the trace's own name of each block id of a part, before the next part is read."""
        return self._rows.names(part.block_ids)


class TraceStream:
    """The requests of a trace in windows, in file order; the requests are independent.

    Ids are numbered in order of first appearance, as in a trace read whole, except that a forgotten id is a
    new id when it occurs again. Notes on ids compare with the ids still known. ``requests`` counts the
    requests of the windows so far; ``warnings`` and ``sha256`` are available after the last window.
    """

    def __init__(self, where: str, rows: TraceRows, block_size: int, guessed: bool) -> None:
        self._rows: TraceRows | None = rows
        self._where, self._block_size, self._guessed = where, block_size, guessed
        self.requests = 0
        self._context: ContextTokens | None = None
        self.sha256 = ""
        #: The first window; its notes on times apply to the whole trace.
        self.first = self._window(rows.take())
        self.warnings: tuple[str, ...] = ()

    def end_answers_at(self, context: ContextTokens) -> None:
        """End the answers of all windows where prompt and answer reach ``context`` tokens."""
        self._context = context
        self.first = with_answers_in_context(self.first, context)

    def next(self, kept_ids: NDArray[np.uint32]) -> Trace | None:
        """Return the next window, None after the last one; all ids except ``kept_ids`` are forgotten before.

        Raises NotAlone, and TraceError and InputOutputError as ``read_trace``.
        """
        if self._rows is None:
            return None
        with located_errors(self._where):
            self._rows.keep_ids(kept_ids)
            more = self._rows.read(WINDOW_ROWS)
            if not self._rows.alone:
                raise NotAlone(
                    "a row of a session, or without block ids",
                    where=self._where,
                    got=f"after row {self.requests}",
                    expected="rows that stand alone, as those before it",
                    hint="give it as a file: then it is read whole",
                )
            if more:
                return self._window(self._rows.take())
            raw, source = self._rows.finish()
            self._rows = None
            self.sha256 = source.sha256()
        last = self._window(raw)
        notes = _notes(self._where, raw, self.requests, self._block_size if self._guessed else None)
        self.warnings = (*notes, *(line_of(self._where, finding) for finding in odd_times(self.first)))
        return last if len(last) else None

    def whole(self) -> Trace:
        """Return the first window with the digest and the notes of the whole trace, after the last window."""
        return replace(self.first, sha256=self.sha256, warnings=self.warnings)

    def _window(self, raw: RowColumns) -> Trace:
        self.requests += len(raw["arrival_ns"])
        columns: dict[str, Any] = {**raw}
        members = {
            name: columns[name] for name in (*COLUMNS, "id_offsets", "block_ids", "session", "priority")
        }
        window = Trace(**members, block_size=self._block_size, source=self._where)
        return window if self._context is None else with_answers_in_context(window, self._context)
