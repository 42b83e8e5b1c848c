"""The local runner: spawned, reused worker processes, one cell at a time each, under limits."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Status, Study
from kvcache_sim.extras.study.sweeps.processes import LocalProcesses, Processes
from kvcache_sim.extras.study.sweeps.stop import StopRequest

#: Time a new worker may take to import the simulator before its first cell's own limit starts to count.
_START_UP_S = 60.0


class Worker:
    """A worker process as the supervisor sees it: the cell it runs, its limits, its end."""

    def __init__(self, study: Study, limits: Limits, processes: Processes) -> None:
        self._limits, self._processes = limits, processes
        self.process = processes.start()
        #: The cell it runs now, None when it is free.
        self.cell: Cell | None = None
        #: True if it can run another cell; once False, only ``close`` may be called.
        self.is_usable = True
        self._attempt = 1
        self._started_s = 0.0
        self._is_ready = False
        self.process.send({"study": asdict(study), "memory_bytes": limits.memory_bytes})

    def start(self, cell: Cell, attempt: int) -> None:
        """Hand the worker its next cell; a worker found dead is noticed when its answer is collected."""
        self.cell, self._attempt, self._started_s = cell, attempt, self._processes.now_s()
        self.process.send(asdict(cell))

    def deadline_s(self) -> float | None:
        """Return the deadline of the running cell; None without a limit."""
        if self.cell is None or self._limits.time_s is None:
            return None
        return self._started_s + self._limits.time_s + (0 if self._is_ready else _START_UP_S)

    def collect(self) -> CellRecord | None:
        """Return the record of the cell that ended, or None when none did, of a message."""
        answer = self.process.receive()
        if isinstance(answer, dict) and "ready" in answer:
            # its start-up is not the cell's time
            self._started_s, self._is_ready = self._processes.now_s(), True
            return None
        cell, elapsed_s = self.cell, self._processes.now_s() - self._started_s
        self.cell = None
        if not isinstance(answer, dict):
            self.is_usable = False
            return self._died(cell, elapsed_s)
        assert cell is not None
        self.is_usable = answer["status"] != "oom"  # the state of its memory is unknown
        return CellRecord(
            cell.cell_id, answer["status"], answer["summary"], answer["error"], elapsed_s, self._attempt
        )

    def time_out(self) -> CellRecord:
        """End the worker because its cell's time is up, and return the cell's record."""
        assert self.cell is not None
        assert self._limits.time_s is not None
        error = f"no answer within the limit of {self._limits.time_s:g} s"
        record = CellRecord(self.cell.cell_id, "timeout", {}, error, self._limits.time_s, self._attempt)
        self.cell, self.is_usable = None, False
        return record

    def _died(self, cell: Cell | None, elapsed_s: float) -> CellRecord | None:
        end = self.process.last_words()
        if cell is None:
            return None
        is_memory = self._limits.memory_bytes is not None and "memory allocation of" in end
        status: Status = "oom" if is_memory else "died"
        error = f"out of memory: {end}" if is_memory else f"the worker ended: {end}"
        return CellRecord(cell.cell_id, status, {}, error, elapsed_s, self._attempt)


class LocalRunner:
    """Runs cells on this machine with ``jobs`` workers; see ``CellRunner`` in ``coordinator``."""

    def __init__(self, jobs: int, limits: Limits, processes: Processes | None = None) -> None:
        self._jobs = jobs
        self._limits = limits
        self._processes = processes or LocalProcesses()

    def run(self, study: Study, cells: Sequence[Cell], stop: StopRequest) -> Iterator[CellRecord]:
        """Yield the record of each cell as it ends, longest cells first; ends early when asked to stop."""
        waiting = [(-cell.work, cell.index, 1, cell) for cell in cells]
        heapq.heapify(waiting)
        by_id = {cell.cell_id: cell for cell in cells}
        workers: list[Worker] = []
        try:
            while True:
                while waiting and stop.level == 0 and (worker := self._idle(workers, study)):
                    _, _, attempt, cell = heapq.heappop(waiting)
                    worker.start(cell, attempt)
                if stop.level >= 2 or all(worker.cell is None for worker in workers):
                    return
                for record in _ended(self._processes, workers, stop):
                    if record.status == "died" and record.attempts <= self._limits.retries:
                        cell = by_id[record.cell_id]
                        heapq.heappush(waiting, (-cell.work, cell.index, record.attempts + 1, cell))
                    else:
                        yield record
                for worker in [worker for worker in workers if not worker.is_usable]:
                    workers.remove(worker)
                    worker.process.close()
        finally:
            for worker in workers:
                worker.process.close()

    def _idle(self, workers: list[Worker], study: Study) -> Worker | None:
        for worker in workers:
            if worker.cell is None:
                return worker
        if len(workers) == self._jobs:
            return None
        workers.append(Worker(study, self._limits, self._processes))
        return workers[-1]


class CellRunner:
    """A runner of single cells in one reused worker under the same limits, for a node of a cluster."""

    def __init__(self, study: Study, limits: Limits) -> None:
        self._study, self._limits, self._processes = study, limits, LocalProcesses()
        self._worker: Worker | None = None

    def run(self, cell: Cell) -> CellRecord:
        """Return the record of a cell, tried again after its worker died."""
        for attempt in range(1, self._limits.retries + 2):
            self._worker = self._worker or Worker(self._study, self._limits, self._processes)
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
            self._worker.process.close()
            self._worker = None

    def _wait(self, worker: Worker) -> CellRecord:
        while True:
            for record in _ended(self._processes, [worker], None):
                return record


def _ended(processes: Processes, workers: Sequence[Worker], stop: StopRequest | None) -> Iterator[CellRecord]:
    """Wait until something happens or a deadline passes, then yield the records of cells that ended."""
    deadlines = [d for worker in workers if (d := worker.deadline_s()) is not None]
    patience_s = max(0.0, min(deadlines) - processes.now_s()) if deadlines else None
    by_process = {id(worker.process): worker for worker in workers}
    for process in processes.wait([worker.process for worker in workers], stop, patience_s):
        if (record := by_process[id(process)].collect()) is not None:
            yield record
    for worker in workers:
        if (deadline := worker.deadline_s()) is not None and deadline <= processes.now_s():
            yield worker.time_out()
