"""A process pool whose workers keep the result of their initializer, as in seed 002's examples.

``from kvcache_sim.workload.tokens.pool import spawn as mp`` (or ``fork``) provides ``mp.Pool``. Unlike in the
standard library's pool, item i always goes to worker ``i % processes``, so each worker does the same in every
run, and a dead worker raises an error instead of an endless wait.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pickle import PicklingError
from types import TracebackType
from typing import Any

from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.base.stop_signals import stop_signals
from kvcache_sim.workload.tokens.prompt import PromptGenerator

#: This process's ends of its workers' pipes: a forked worker closes its copies; otherwise no worker would see
#: the parent's end close.
_parent_ends: list[Connection] = []


class WorkerDiedError(KvsimError):
    """A worker process that ended without an answer."""


@dataclass(slots=True)
class _Worker:
    process: Any
    connection: Connection
    items: int = 0

    def ask(self, function: Callable[..., Any], index: int, item: Any) -> None:
        try:
            self.connection.send((function, index, item))
        except BrokenPipeError:
            raise self._died() from None
        self.items += 1

    def answer(self) -> Any:
        try:
            error, result = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        if error is not None:
            raise error
        return result

    def _died(self) -> WorkerDiedError:
        self.process.join(timeout=5)
        return WorkerDiedError(
            "a worker process ended without an answer", got=f"exit code {self.process.exitcode}",
            hint="a script that starts workers needs 'if __name__ == \"__main__\":'",
        )  # fmt: skip


class Pool:
    """``processes`` workers, each of which first calls ``initializer(*initargs)``.

    A result other than None becomes the first argument of every function the worker calls. If it is a
    `PromptGenerator`, it receives the number of each item, its row. Leaving the ``with`` ends the workers.
    Raises UsageError for fewer than one worker.
    """

    def __init__(
        self,
        processes: int,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        start_method: str = "spawn",
    ) -> None:
        if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
            raise UsageError(
                "not a number of workers", where="workers", got=repr(processes), expected="at least 1"
            )
        context: Any = multiprocessing.get_context(start_method)
        self._workers: list[_Worker] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            _parent_ends.append(ours)
            process = context.Process(target=_serve, args=(theirs, initializer, initargs), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.terminate()

    @property
    def items_by_pid(self) -> dict[int, int]:
        """Number of items sent to each worker process, by its process id."""
        return {worker.process.pid: worker.items for worker in self._workers}

    def map(self, function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """Return ``function`` of every item, in order; raises as `imap`."""
        return list(self.imap(function, items))

    def imap(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield ``function`` of every item, in order; each worker has at most one item in progress.

        An exception in a worker is raised here unchanged; WorkerDiedError if a worker ends without an answer.
        """
        waiting = enumerate(items)
        busy: deque[_Worker] = deque()
        try:
            for worker, entry in zip(self._workers, waiting, strict=False):
                worker.ask(function, *entry)
                busy.append(worker)
            while busy:
                worker = busy.popleft()
                answer = worker.answer()
                following = next(waiting, None)
                if following is not None:
                    worker.ask(function, *following)
                    busy.append(worker)
                yield answer
        finally:
            for worker in busy:  # left early: drain unread answers, so that the next call is clean
                with contextlib.suppress(Exception):
                    worker.answer()

    def terminate(self) -> None:
        """End the workers; unfinished items are lost."""
        for worker in self._workers:
            worker.connection.close()
            with contextlib.suppress(ValueError):
                _parent_ends.remove(worker.connection)
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()


@dataclass(frozen=True, slots=True)
class Context:
    """A start method of workers, with the only name of `multiprocessing` that seed 002 uses."""

    start_method: str

    def Pool(
        self, processes: int, initializer: Callable[..., Any] | None = None, initargs: tuple[Any, ...] = ()
    ) -> Pool:
        """Return a `Pool` whose workers use this start method."""
        return Pool(processes, initializer, initargs, self.start_method)


spawn = Context("spawn")
fork = Context("fork")


def _serve(connection: Connection, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
    """Answer until the parent's end closes; the parent handles interrupts."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    for inherited in _parent_ends:
        inherited.close()
    _parent_ends.clear()
    state: Any = None
    failed: Exception | None = None
    try:
        state = initializer(*initargs) if initializer else None
    except Exception as error:
        failed = error
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, index, item = connection.recv()
            answer = (failed, None) if failed else _call(function, state, index, item)
            try:
                connection.send(answer)
            except (TypeError, AttributeError, PicklingError) as error:
                connection.send((RuntimeError(f"an answer that cannot be sent: {error}"), None))


def _call(function: Callable[..., Any], state: Any, index: int, item: Any) -> tuple[Exception | None, Any]:
    try:
        if state is None:
            return None, function(item)
        if isinstance(state, PromptGenerator):
            state.at_row(index)
        return None, function(state, item)
    except Exception as error:
        return error, None
