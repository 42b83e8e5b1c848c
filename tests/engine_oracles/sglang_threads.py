"""The threads of HiCache's controller under a virtual clock: the wheel's own loops, one after another.

A thread runs until it waits for an item or for its storage, then the next one does, in the order of their times; of
several at one time the one that writes to the storage goes first, then the one that asks it, then the one that reads.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty
from typing import Any

from engine_oracles import sglang_storage
from engine_oracles.stubs import Fields, Real

_NEVER = 1 << 62


class Worker:
    """A thread of the controller that runs only while the clock stands."""

    def __init__(self, threads: Threads, run: Any) -> None:
        self.at, self.until, self.line, self.error = 0, 0, None, None
        self.resumed, self.paused = threading.Semaphore(0), threading.Semaphore(0)
        self.threads, self.run = threads, run
        threading.Thread(target=self._main, daemon=True).start()

    def _main(self) -> None:
        self.resumed.acquire()
        try:
            self.run()
        except Exception as error:
            self.error = error
        self.until = _NEVER
        self.paused.release()

    def ready(self) -> int:
        """Return the time at which it continues."""
        if self.line is None:
            return self.until
        return max(self.at, self.line.items[0][0]) if self.line.items else _NEVER

    def resume(self, at: int) -> None:
        self.at, self.threads.running = at, self
        self.resumed.release()
        self.paused.acquire()
        self.threads.running = None
        if self.error is not None:
            raise self.error

    def pause(self, until: int, line: Any = None) -> None:
        self.until, self.line = until, line
        self.paused.release()
        self.resumed.acquire()
        self.line = None


class Line:
    """A queue whose items have the times at which they were put."""

    def __init__(self, threads: Threads) -> None:
        self.threads, self.items = threads, deque[tuple[int, Any]]()

    def put(self, item: Any) -> None:
        self.items.append((self.threads.now(), item))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and self.threads.running is not None:
            self.threads.running.pause(_NEVER, self)
        if not self.items:
            raise Empty
        return self.items.popleft()[1]

    def qsize(self) -> int:
        return len(self.items)

    def empty(self) -> bool:
        return not self.items


class Timed(sglang_storage.Files):
    """A storage whose pages take time: a batch is written once its time is over, and read from the start."""

    def __init__(self, real: Real, pages: int | None, threads: Threads, page_ns: tuple[int, int]) -> None:
        super().__init__(real, pages)
        self.threads, self.write_ns, self.read_ns = threads, *page_ns

    def set(self, keys: list[str], *given: Any) -> bool:
        new = sum(key not in self.keys for key in keys)
        self.threads.sleep(new * self.write_ns)
        return super().set(keys, *given)

    def get(self, operation: Any, keys: list[str], *given: Any) -> int:
        there = super().get(operation, keys, *given)
        self.threads.sleep(there * self.read_ns)
        return there


class Threads:
    """The controller's threads of one engine."""

    def __init__(self, engine: Any, cache: Any, controller: Any) -> None:
        self.engine, self.running = engine, None
        asked, real = engine.asked.storage, engine.real
        made = Timed(real.storage, asked.pages, self, asked.page_ns)
        sglang_storage.attach(real.storage, cache, controller, made, asked.threshold, lambda: Line(self))
        self.cache, self.controller, self.stopped = cache, controller, threading.Event()
        controller.storage_stop_event = self.stopped
        controller.prefetch_hits_sync_groups = controller.prefetch_completion_sync_groups = None
        controller._all_reduce = lambda *_: None
        controller.storage_config = Fields(is_storage_writer=True)
        if not hasattr(type(controller), "backup_skip"):  # before 0.5.23
            controller.backup_skip = False
        # a fault in a thread is one of the stand-ins
        controller._page_backup_or_log = controller._page_backup
        cache.prefetch_stop_policy = asked.stop
        cache.prefetch_timeout_base = asked.timeout
        cache.prefetch_timeout_per_page = asked.timeout_per_ki_token * engine.asked.page / 1024
        own = (
            controller.backup_thread_func,
            controller.prefetch_thread_func,
            controller.prefetch_io_aux_func,
            controller.prefetch_sync_thread_func,
        )
        self.workers = [Worker(self, run) for run in own]
        counts, terminate, pop = (
            cache._sync_hicache_ready_counts,
            controller.terminate_prefetch,
            cache.pop_prefetch_loaded_span,
        )
        cache._sync_hicache_ready_counts = lambda: (self.advance(), counts())[1]
        controller.terminate_prefetch = lambda operation: (self._ends(operation), terminate(operation))[1]
        cache.pop_prefetch_loaded_span = lambda handle: self._uses(pop(handle))

    def _ends(self, operation: Any) -> None:
        self.advance()
        is_read = operation.host_indices is not None
        self.engine.counts["prefetches cut short"] += is_read
        self.engine.counts["prefetches cut before they were read"] += not is_read

    def _uses(self, span: tuple[int, int]) -> tuple[int, int]:
        self.engine.counts["prefetched"] += span[0] > 0
        return span

    def count(self) -> None:
        """Count what the engine counts of its prefetches, and what the storage evicted."""
        stats, counts = self.cache._prefetch_outcome_stats, self.engine.counts
        counts["prefetches refused for their share"] = stats["declined_rate_limited"]
        counts["found too little"] = stats["revoked_full_miss"] + stats["revoked_insufficient"]
        counts["evicted from the storage"] = self.controller.storage_backend.evicted

    def now(self) -> int:
        return int(self.engine.now if self.running is None else self.running.at)

    def sleep(self, took: int) -> None:
        self.running.pause(self.running.at + took)

    def advance(self) -> None:
        """Let the threads do what they do up to now."""
        while True:
            at, first = min((worker.ready(), n) for n, worker in enumerate(self.workers))
            if at > self.engine.now:
                return
            self.workers[first].resume(at)

    def is_settled(self) -> bool:
        """Return whether the scheduler's next passes have nothing to do for the storage."""
        cc, retries = self.controller, self.cache.storage_prefetch_retries
        self.advance()
        done = (cc.prefetch_hit_queue, cc.ack_prefetch_queue, cc.ack_backup_queue, cc.host_mem_release_queue)
        waiting = [req.rid for req in self.engine.scheduler.waiting_queue]
        return all(queue.empty() for queue in done) and not any(rid in retries._pending for rid in waiting)

    def coming(self) -> list[int]:
        """Return the times at which a thread continues, and the ends of waits for prefetches."""
        at = [worker.ready() for worker in self.workers]
        for wait in self.cache._storage_prefetch_wait.values():
            if wait.timer.running and not wait.expired:
                at.append(int((wait.timer.started_at + wait.timeout_s) * 10**9) + 1)
        if not hasattr(self.cache, "_start_storage_prefetch_wait"):
            base, each = self.cache.prefetch_timeout_base, self.cache.prefetch_timeout_per_page
            for operation in [entry.operation for entry in self.cache.ongoing_prefetch.values()]:
                ends = operation.start_time + base + len(operation.hash_value) * each
                at.append(int(ends * 10**9) + 1)
        return [ns for ns in at if self.engine.now < ns < _NEVER]

    def stop(self) -> None:
        """End the threads."""
        self.stopped.set()
        for worker in self.workers:
            for _ in range(1000):
                if worker.until == _NEVER and worker.line is None:
                    break
                worker.resume(_NEVER)
