"""The local backend: spawned, reused worker processes, one cell at a time each, under limits."""

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
from typing import IO, Any

from kvcache_sim.sweep.cell import Cell, CellRecord, Limits, Status, Study
from kvcache_sim.sweep.pipe import receive, send
from kvcache_sim.sweep.stop import StopRequest

#: Time a new worker may take to import the simulator before its first cell's own limit starts to count.
_START_UP_S = 60.0


class WorkerProcess:
    """One worker: its process, the two pipes to it, and the cell it runs now."""

    def __init__(self, study: Study, limits: Limits) -> None:
        self._limits = limits
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
        task_reader, self.writer = os.pipe()
        self.reader, answer_writer = os.pipe()
        command = [sys.executable, "-m", "kvcache_sim.sweep.worker"]
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
        self.cell: Cell | None = None
        self.attempt = 1
        self.started_s = 0.0
        self.ready = False
        self._send({"study": asdict(study), "memory_bytes": limits.memory_bytes})

    def start(self, cell: Cell, attempt: int) -> None:
        """Hand the worker its next cell; a worker found dead is noticed when its answer is awaited."""
        self.cell, self.attempt, self.started_s = cell, attempt, time.monotonic()
        self._send(asdict(cell))

    def deadline_s(self) -> float | None:
        """Return when the running cell has used up its time, on the monotonic clock."""
        if self.cell is None or self._limits.time_s is None:
            return None
        return self.started_s + self._limits.time_s + (0 if self.ready else _START_UP_S)

    def answer(self) -> dict[str, Any] | None:
        """Return the next answer (waits for it), or None when the worker died."""
        message = receive(self.reader)
        return message if isinstance(message, dict) else None

    def kill(self) -> str:
        """End the worker now and return how it ended: ``signal 9``, ``exit code 1``, with its last words."""
        if self._process.poll() is None:
            self._process.kill()
        code = self._process.wait()
        os.close(self.reader)
        os.close(self.writer)
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self._log.close()
        end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{end}: {lines[-1].strip()[:300]}" if lines else end

    def let_end(self) -> None:
        """Give a process that closed its pipe a moment to end by itself, so that its exit code is its own."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            send(self.writer, message)


class LocalBackend:
    """Runs cells on this machine with ``jobs`` workers; see ``Backend`` in ``coordinator``."""

    def __init__(self, jobs: int, limits: Limits) -> None:
        self._jobs = jobs
        self._limits = limits

    def run(self, study: Study, cells: Sequence[Cell], stop: StopRequest) -> Iterator[CellRecord]:
        """Yield the record of each cell as it ends, longest cells first; ends early when asked to stop."""
        waiting = [(-cell.work, cell.index, 1, cell) for cell in cells]
        heapq.heapify(waiting)
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
                for key, _ in selector.select(self._patience_s(busy)):
                    if key.fileobj is stop:
                        stop.acknowledge()
                        continue
                    worker = key.data
                    record = self._collect(worker, workers, selector)
                    if record is None:
                        continue
                    if record.status == "died" and record.attempts <= self._limits.retries:
                        cell = next(c for c in cells if c.cell_id == record.cell_id)
                        heapq.heappush(waiting, (-cell.work, cell.index, record.attempts + 1, cell))
                        continue
                    yield record
                for worker in [w for w in workers if (d := w.deadline_s()) and d <= time.monotonic()]:
                    yield self._time_out(worker, workers, selector)
        finally:
            for worker in workers:
                worker.kill()
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

    def _patience_s(self, busy: list[WorkerProcess]) -> float | None:
        deadlines = [d for worker in busy if (d := worker.deadline_s()) is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _collect(
        self, worker: WorkerProcess, workers: list[WorkerProcess], selector: selectors.BaseSelector
    ) -> CellRecord | None:
        answer = worker.answer()
        if answer is not None and "ready" in answer:
            worker.started_s, worker.ready = time.monotonic(), True  # its start-up is not the cell's time
            return None
        elapsed_s = time.monotonic() - worker.started_s
        cell = worker.cell
        if answer is None:
            worker.let_end()
            end = self._dismiss(worker, workers, selector)
            if cell is None:
                return None
            status: Status = "oom" if self._limits.memory_bytes and "memory allocation of" in end else "died"
            error = f"the worker ended: {end}" if status == "died" else f"out of memory: {end}"
            return CellRecord(cell.cell_id, status, {}, error, elapsed_s, worker.attempt)
        assert cell is not None
        worker.cell = None
        if answer["status"] == "oom":  # what is left of its memory is anyone's guess
            self._dismiss(worker, workers, selector)
        return CellRecord(
            cell.cell_id,
            answer["status"],
            answer["summary"],
            answer["error"],
            elapsed_s,
            worker.attempt,
        )

    def _time_out(
        self, worker: WorkerProcess, workers: list[WorkerProcess], selector: selectors.BaseSelector
    ) -> CellRecord:
        cell = worker.cell
        assert cell is not None
        self._dismiss(worker, workers, selector)
        error = f"no answer within the limit of {self._limits.time_s:g} s"
        return CellRecord(cell.cell_id, "timeout", {}, error, self._limits.time_s or 0.0, worker.attempt)

    def _dismiss(
        self, worker: WorkerProcess, workers: list[WorkerProcess], selector: selectors.BaseSelector
    ) -> str:
        selector.unregister(worker.reader)
        workers.remove(worker)
        return worker.kill()
