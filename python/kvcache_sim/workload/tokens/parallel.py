"""The tokens of a whole trace on worker processes, equal to the serial ones for any number of workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.tokens.corpus import PromptConfig
from kvcache_sim.workload.tokens.pool import Pool
from kvcache_sim.workload.tokens.sequences import (
    BATCH_TOKENS,
    Names,
    RowBatch,
    RowWriter,
    TokenBatch,
    block_starts,
    check_trace,
    id_names,
    longest_batch,
    row_batches,
    token_batches,
)
from kvcache_sim.workload.trace import Trace

#: Most ids per message when only their starts are requested.
_IDS_A_MESSAGE = 16_384
#: Least messages per worker, so that a small trace is divided among all workers too.
_MESSAGES_A_WORKER = 4


@dataclass(frozen=True, slots=True)
class WorkerCount:
    """Work of one process: rows it wrote, ids it drew a start for."""

    pid: int
    rows: int
    ids: int


class TokenSource(Protocol):
    """A source of a trace's tokens: this process, or several."""

    @property
    def counts(self) -> list[WorkerCount]:
        """The work done so far by each active process, by process id."""

    def batches(self) -> Iterator[TokenBatch]:
        """Yield the rows' tokens in order, each batch valid until the next; raises as `check_trace`."""

    def starts(self) -> NDArray[np.uint32]:
        """Return the start of every distinct id, by dense id: in order of first appearance."""


class OneProcess:
    """A `TokenSource` in this process."""

    def __init__(self, trace: Trace, config: PromptConfig, base_seed: int) -> None:
        self._trace, self._config, self._base_seed = trace, config, base_seed
        self._rows = self._ids = 0

    @property
    def counts(self) -> list[WorkerCount]:
        """The work done by this process so far."""
        return [WorkerCount(os.getpid(), self._rows, self._ids)]

    def batches(self) -> Iterator[TokenBatch]:
        """Yield what `token_batches` yields."""
        self._ids = self._trace.distinct_ids
        for batch in token_batches(self._trace, self._config, self._base_seed):
            self._rows += len(batch.offsets) - 1
            yield batch

    def starts(self) -> NDArray[np.uint32]:
        """Return what `block_starts` returns."""
        self._ids = self._trace.distinct_ids
        return block_starts(self._trace, self._config, self._base_seed)


@contextmanager
def token_source(trace: Trace, config: PromptConfig, base_seed: int, workers: int) -> Iterator[TokenSource]:
    """Yield the source for ``workers`` processes: 1 is this process, more are spawned."""
    if workers == 1:
        yield OneProcess(trace, config, base_seed)
    else:
        with TokenWorkers(trace, config, base_seed, workers) as crew:
            yield crew


class TokenWorkers:
    """Worker processes without shared state: each receives the settings and the base seed once.

    Batch i goes to worker ``i % workers``. Memory: in each process as `token_batches`, whatever the trace's
    number of tokens. Use it as a context manager.
    """

    def __init__(
        self, trace: Trace, config: PromptConfig, base_seed: int, workers: int, start_method: str = "spawn"
    ) -> None:
        self._trace, self._config = trace, config
        self._messages = _MESSAGES_A_WORKER * workers
        self._counts: dict[int, WorkerCount] = {}
        self._pool = Pool(
            workers, _start, (config, base_seed, trace.distinct_ids, longest_batch(trace)), start_method
        )

    def __enter__(self) -> TokenWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()

    @property
    def counts(self) -> list[WorkerCount]:
        """The work done so far by each active worker, by process id."""
        return sorted(self._counts.values(), key=lambda count: count.pid)

    def batches(self) -> Iterator[TokenBatch]:
        """Yield the rows' tokens in order, as `token_batches` does; raises as `check_trace`."""
        check_trace(self._trace, self._config)
        total = int(self._trace.input_tokens.sum())
        batch_tokens = min(BATCH_TOKENS, -(-total // self._messages))
        for count, batch in self._pool.imap(_write, row_batches(self._trace, batch_tokens)):
            self._counts[count.pid] = count
            yield batch

    def starts(self) -> NDArray[np.uint32]:
        """Return the start of every distinct id, as `block_starts` does."""
        drawn = []
        for count, starts in self._pool.imap(_draw, self._id_slices()):
            self._counts[count.pid] = count
            drawn.append(starts)
        return np.concatenate([np.empty(0, np.uint32), *drawn])

    def _id_slices(self) -> Iterator[_Ids]:
        distinct = self._trace.distinct_ids
        step = max(1, min(_IDS_A_MESSAGE, -(-distinct // self._messages)))
        for first in range(0, distinct, step):
            ids = np.arange(first, min(first + step, distinct), dtype=np.uint32)
            yield _Ids(ids, id_names(self._trace, ids))


class _Ids(NamedTuple):
    """Dense ids, and their names in the trace."""

    ids: NDArray[np.uint32]
    names: Names


class _Worker:
    """State of a worker process: its writer, a buffer, and the number of rows it has written."""

    def __init__(self, writer: RowWriter, buffer_tokens: int) -> None:
        self.writer = writer
        self.buffer = np.empty(buffer_tokens, np.uint32)
        self.rows = 0

    def count(self) -> WorkerCount:
        return WorkerCount(os.getpid(), self.rows, self.writer.ids_drawn)


def _start(config: PromptConfig, base_seed: int, distinct_ids: int, buffer_tokens: int) -> _Worker:
    return _Worker(RowWriter(config, base_seed, distinct_ids), buffer_tokens)


def _write(worker: _Worker, batch: RowBatch) -> tuple[WorkerCount, TokenBatch]:
    written = worker.writer.write(batch, worker.buffer)
    worker.rows += len(batch.lengths)
    return worker.count(), written


def _draw(worker: _Worker, ids: _Ids) -> tuple[WorkerCount, NDArray[np.uint32]]:
    starts = worker.writer.draw(*ids)
    return worker.count(), starts
