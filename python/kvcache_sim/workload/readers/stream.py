"""A trace that is read while it is simulated: a window of rows at a time, in constant memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError
from kvcache_sim.workload.readers.findings import Finding, line_of, odd_times
from kvcache_sim.workload.readers.json_rows import guessed_block
from kvcache_sim.workload.readers.problems import located_errors
from kvcache_sim.workload.trace import COLUMNS, Trace

if TYPE_CHECKING:
    from kvcache_sim._core import RowColumns, TraceRows

#: Rows of a window after the first one.
WINDOW_ROWS = 1 << 16


class NotAlone(TraceError):
    """A row that belongs to a session or waits for another one, in a trace that is read in windows."""


class TraceStream:
    """The requests of a trace in windows, one after another in file order; each request stands alone.

    Ids are numbered in order of first appearance, as in a trace read whole, except that one which was
    forgotten and comes again is a new one; remarks on ids compare with what is still known. ``requests``
    counts those of the windows so far; ``warnings`` and ``sha256`` are there after the last one.
    """

    def __init__(self, where: str, rows: TraceRows, block_size: int, guessed: bool) -> None:
        self._rows: TraceRows | None = rows
        self._where, self._block_size, self._guessed = where, block_size, guessed
        self.requests = 0
        self.sha256 = ""
        #: The first window; its remarks on times stand for all of the trace.
        self.first = self._window(rows.take())
        self.warnings: tuple[str, ...] = ()

    def next(self, kept_ids: NDArray[np.uint32]) -> Trace | None:
        """Return the next window, None after the last one; all ids but ``kept_ids`` are forgotten before.

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
        findings = [Finding(*found) for found in raw["findings"]]
        if self._guessed:
            findings.append(Finding(*guessed_block(self._block_size, self.requests)))
        remarks = (*findings, *odd_times(self.first))
        self.warnings = tuple(line_of(self._where, finding) for finding in remarks)
        return last if len(last) else None

    def whole(self) -> Trace:
        """Return the first window with the digest and the remarks of all, when all has been read."""
        return replace(self.first, sha256=self.sha256, warnings=self.warnings)

    def _window(self, raw: RowColumns) -> Trace:
        self.requests += len(raw["arrival_ns"])
        columns: dict[str, Any] = {**raw}
        own = {name: columns[name] for name in (*COLUMNS, "id_offsets", "block_ids", "session", "priority")}
        return Trace(**own, block_size=self._block_size, source=self._where)
