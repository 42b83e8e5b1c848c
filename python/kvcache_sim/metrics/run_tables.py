"""The tables of a run directory that are written during the run."""

from __future__ import annotations

from kvcache_sim.metrics.columns import EVENT_COLUMNS, REQUEST_COLUMNS, SLO_COLUMNS
from kvcache_sim.metrics.digests import ResultsDigest
from kvcache_sim.metrics.measurement import MeasuredRequests
from kvcache_sim.metrics.parts import Part
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.run_directory import RunDirectory
from kvcache_sim.metrics.tables import read_groups


class RunTables:
    """Streamed events and, with ``requests``, rows of requests: written, and added to the totals.

    Cost: one row group of each, and a scratch file for the digest, deleted at the end of the run. Of a live
    run, rows are added up from their table by ``add_up``: totals keep numbers of each request.
    """

    def __init__(
        self, directory: RunDirectory, requests: MeasuredRequests | None = None, is_live: bool = False
    ) -> None:
        self._file = directory.part / "requests.parquet"
        self._is_live = is_live
        rows_leave = requests is not None
        self._events = directory.table("events", EVENT_COLUMNS)
        judged = requests is not None and requests.objectives is not None
        columns = {**REQUEST_COLUMNS, **(SLO_COLUMNS if judged else {})}
        self._requests = directory.table("requests", columns) if rows_leave else None
        self._scratch = directory.scratch() if rows_leave else None
        #: Totals of the streamed rows; None if rows stay in memory.
        self.requests = requests
        #: Digest of the streamed rows; None if rows stay in memory.
        self.digest = None if self._scratch is None else ResultsDigest(self._scratch)

    def take_events(self, part: Part) -> None:
        """Write some events."""
        self._events.write(part)

    def take_rows(self, part: Part) -> None:
        """Add up and write some rows of ``requests``."""
        assert self.requests is not None
        assert self._requests is not None
        if not self._is_live:
            self.requests.add(part)
        self._requests.write(self.requests.judged(part))

    def add_up(self) -> None:
        """Add the rows of a live run that has ended."""
        assert self.requests is not None
        assert self._requests is not None
        self._requests.close()
        self._requests = None
        for part in read_groups(self._file):
            self.requests.add(part)

    def close(self, run: Run) -> None:
        """Write the remaining events and close the tables."""
        with self._events as events:
            events.write_all(run.events)
        if self._requests is not None:
            self._requests.close()
        if self._scratch is not None:
            self._scratch.close()
