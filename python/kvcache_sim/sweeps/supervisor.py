"""The local runner: spawned, reused worker processes, one cell at a time each, under limits.

``WorkerProcess`` is one of them as the supervisor sees it: the cell it runs, its limits, how it ended.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO

from kvcache_sim.sweeps.cell import Cell, CellRecord, Limits, Status, Study
from kvcache_sim.sweeps.stop import StopRequest
from kvcache_sim.sweeps.worker import receive, send

#: Time a new worker may take to import the simulator before its first cell's own limit starts to count.
_START_UP_S = 60.0


class WorkerProcess:
    """A spawned worker. ``reader`` is readable when the worker has sent a message or has died."""

    def __init__(self, study: Study, limits: Limits) -> None:
        self._limits = limits
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
        task_reader, self._writer = os.pipe()
        self.reader, answer_writer = os.pipe()
        command = [sys.executable, "-m", "kvcache_sim.sweeps.worker"]
        self._process = subprocess.Popen(
            [*command, str(task_reader), str(answer_writer), str(os.getpid())],
            pass_fds=(task_reader, answer_writer),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            process_group=0,  # Ctrl-C in the terminal reaches the supervisor alone
        )
        os.close(task_reader)
        os.close(answer_writer)
        #: The cell it runs now, None when it is free.
        self.cell: Cell | None = None
        #: True if it can run another cell; once False, only ``close`` may be called.
        self.is_usable = True
        self._attempt = 1
        self._started_s = 0.0
        self._is_ready = False
        self._send({"study": asdict(study), "memory_bytes": limits.memory_bytes})

    def start(self, cell: Cell, attempt: int) -> None:
        """Hand the worker its next cell; a worker found dead is noticed when its answer is collected."""
        self.cell, self._attempt, self._started_s = cell, attempt, time.monotonic()
        self._send(asdict(cell))

    def deadline_s(self) -> float | None:
        """Return the deadline of the running cell on the monotonic clock; None without a limit."""
        if self.cell is None or self._limits.time_s is None:
            return None
        return self._started_s + self._limits.time_s + (0 if self._is_ready else _START_UP_S)

    def collect(self) -> CellRecord | None:
        """Return the record of the cell that ended, or None when none did (waits for ``reader``)."""
        answer = receive(self.reader)
        if isinstance(answer, dict) and "ready" in answer:
            self._started_s, self._is_ready = time.monotonic(), True  # its start-up is not the cell's time
            return None
        cell, elapsed_s = self.cell, time.monotonic() - self._started_s
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

    def close(self) -> None:
        """End the process, if it still runs, and release its descriptors."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self.reader)
        os.close(self._writer)
        self._log.close()

    def _died(self, cell: Cell | None, elapsed_s: float) -> CellRecord | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)  # a process that closed its pipe is about to end by itself
        end = self._last_words()
        if cell is None:
            return None
        is_memory = self._limits.memory_bytes is not None and "memory allocation of" in end
        status: Status = "oom" if is_memory else "died"
        error = f"out of memory: {end}" if is_memory else f"the worker ended: {end}"
        return CellRecord(cell.cell_id, status, {}, error, elapsed_s, self._attempt)

    def _last_words(self) -> str:
        code = self._process.poll()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        end = (
            "still there" if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"
        )
        return f"{end}: {lines[-1].strip()[:300]}" if lines else end

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            send(self._writer, message)


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
    """A runner of single cells in one reused worker under the same limits, for a node of a cluster."""

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
