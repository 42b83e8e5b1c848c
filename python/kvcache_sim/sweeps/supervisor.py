"""The local runner: spawned, reused worker processes, one cell at a time each, under limits."""

from __future__ import annotations

import heapq
import selectors
import time
from collections.abc import Iterator, Sequence

from kvcache_sim.sweeps.cell import Cell, CellRecord, Limits, Study
from kvcache_sim.sweeps.stop import StopRequest
from kvcache_sim.sweeps.worker_process import WorkerProcess


class LocalRunner:
    """Runs cells on this machine with ``jobs`` workers; see ``CellRunner`` in ``coordinator``."""

    def __init__(self, jobs: int, limits: Limits) -> None:
        self._jobs = jobs
        self._limits = limits

    def run(self, study: Study, cells: Sequence[Cell], stop: StopRequest) -> Iterator[CellRecord]:
        """Yield the record of each cell as it ends, longest cells first; ends early when asked to stop."""
        waiting = [(-cell.work, cell.index, 1, cell) for cell in cells]
        heapq.heapify(waiting)
        by_id = {cell.cell_id: cell for cell in cells}
        workers: list[WorkerProcess] = []
        selector = selectors.DefaultSelector()
        selector.register(stop, selectors.EVENT_READ)
        try:
            while True:
                while waiting and stop.level == 0 and (worker := self._idle(workers, study, selector)):
                    _, _, attempt, cell = heapq.heappop(waiting)
                    worker.start(cell, attempt)
                busy = [worker for worker in workers if worker.cell is not None]
                if not busy or stop.level >= 2:
                    return
                for record in _ended(selector, busy, stop):
                    if record.status == "died" and record.attempts <= self._limits.retries:
                        cell = by_id[record.cell_id]
                        heapq.heappush(waiting, (-cell.work, cell.index, record.attempts + 1, cell))
                    else:
                        yield record
                for worker in [worker for worker in workers if not worker.is_usable]:
                    selector.unregister(worker.reader)
                    workers.remove(worker)
                    worker.close()
        finally:
            for worker in workers:
                worker.close()
            selector.close()

    def _idle(
        self, workers: list[WorkerProcess], study: Study, selector: selectors.BaseSelector
    ) -> WorkerProcess | None:
        for worker in workers:
            if worker.cell is None:
                return worker
        if len(workers) == self._jobs:
            return None
        worker = WorkerProcess(study, self._limits)
        workers.append(worker)
        selector.register(worker.reader, selectors.EVENT_READ, worker)
        return worker


class CellRunner:
    """Runs single cells in one kept worker under the same limits: what a node of a cluster does."""

    def __init__(self, study: Study, limits: Limits) -> None:
        self._study, self._limits = study, limits
        self._worker: WorkerProcess | None = None

    def run(self, cell: Cell) -> CellRecord:
        """Return the record of a cell, tried again after its worker died."""
        for attempt in range(1, self._limits.retries + 2):
            self._worker = self._worker or WorkerProcess(self._study, self._limits)
            self._worker.start(cell, attempt)
            record = self._wait(self._worker)
            if not self._worker.is_usable:
                self.close()
            if record.status != "died":
                break
        return record

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _wait(self, worker: WorkerProcess) -> CellRecord:
        with selectors.DefaultSelector() as selector:
            selector.register(worker.reader, selectors.EVENT_READ, worker)
            while True:
                for record in _ended(selector, [worker], None):
                    return record


def _ended(
    selector: selectors.BaseSelector, busy: Sequence[WorkerProcess], stop: StopRequest | None
) -> Iterator[CellRecord]:
    """Wait until something happens or a deadline passes, then yield the records of cells that ended."""
    deadlines = [d for worker in busy if (d := worker.deadline_s()) is not None]
    patience_s = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
    for key, _ in selector.select(patience_s):
        if stop is not None and key.fileobj is stop:
            stop.acknowledge()
        elif (record := key.data.collect()) is not None:
            yield record
    for worker in busy:
        if (deadline := worker.deadline_s()) is not None and deadline <= time.monotonic():
            yield worker.time_out()
