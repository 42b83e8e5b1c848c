"""Cost of each operation of the hot path from Python, in CPU ns.

The workload equals that of ``rust/core/benches/operations.rs``: 2,000 requests of 24 blocks in 50 groups that
share their first 12, on a full GPU of 10,000 blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kvcache_sim import _core
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import ARRIVAL, Engine
from round_times import round_s

REQUESTS, BLOCKS, SHARED, GROUPS, CAPACITY = 2_000, 24, 12, 50, 10_000
pytestmark = pytest.mark.benchmark(group="operations, CPU time", timer=time.process_time)
NO_MEMBER = 2**32 - 1


def keys() -> _core.Keys:
    first = GROUPS * SHARED
    rows = [
        [
            r % GROUPS * SHARED + b if b < SHARED else first + r * (BLOCKS - SHARED) + b - SHARED
            for b in range(BLOCKS)
        ]
        for r in range(REQUESTS)
    ]
    offsets = np.arange(REQUESTS + 1, dtype=np.int64) * BLOCKS
    full = np.full(REQUESTS, BLOCKS, np.uint32)
    return _core.Keys(
        offsets, np.array(rows, np.uint32).ravel(), 1, full, np.full(REQUESTS, NO_MEMBER, np.uint32)
    )


def run_requests(store: _core.Store, first: int, last: int) -> None:
    """Look up, admit, evict, commit and release: the whole request lifecycle in the cache."""
    for request in range(first, last):
        ready = store.peek(request, BLOCKS)[1]
        lease = store.acquire(request, ready)
        store.reserve(lease, BLOCKS - ready, request)
        store.commit(lease, BLOCKS)
        store.release(lease, request)


@pytest.fixture
def store() -> _core.Store:
    full = _core.Store(keys(), [CAPACITY], [False])
    run_requests(full, 0, REQUESTS)
    return full


@pytest.fixture
def measure(benchmark: Any) -> Callable[..., None]:
    """Measure ``work()``, which does so many operations; the figure is ns per operation."""

    def of(operations: int, work: Callable[..., Any], **options: Any) -> None:
        benchmark.pedantic(work, **{"rounds": 7, "warmup_rounds": 1, **options})
        benchmark.extra_info["ns/op"] = round(round_s(benchmark) * 1e9 / operations)
        benchmark.extra_info["op/s"] = round(operations / round_s(benchmark))

    return of


def test_event_loop(measure):
    """An event queued and run, with a thousand waiting; the loop is Python and has no counterpart in Rust."""
    events = 50_000

    def run() -> None:
        engine = Engine(64)

        def again(number: int) -> None:
            if number < events:
                later = engine.now_ns + number * 7919 % 1_009
                engine.schedule(later, ARRIVAL, number % 64, again, number + 1_000)

        for number in range(1_000):
            engine.schedule(number, ARRIVAL, number % 64, again, number + 1_000)
        engine.run()
        assert engine.processed == events

    measure(events, run)


def test_keys(measure):
    named = keys()
    measure(REQUESTS * BLOCKS, lambda: [named.key(r, b) for r in range(REQUESTS) for b in range(BLOCKS)])


def test_peek(measure, store):
    measure(REQUESTS, lambda: [store.peek(request, BLOCKS) for request in range(REQUESTS)])


def test_match_prefix(measure, store):
    measure(REQUESTS, lambda: [store.match_prefix(request, BLOCKS) for request in range(REQUESTS)])


def test_acquire_reserve_release(measure, store):
    """A request that computes nothing: hold, reserve one block, release."""

    def run() -> None:
        for request in range(REQUESTS):
            lease = store.acquire(request, store.peek(request, BLOCKS)[1])
            store.reserve(lease, 1, request)
            store.release(lease, request)

    measure(REQUESTS, run)


def test_whole_requests_evicting(measure, store):
    """peek, acquire, reserve (which evicts), commit, release."""
    measure(REQUESTS, lambda: run_requests(store, 0, REQUESTS))


def test_transmit(measure):
    """A job queued on a FIFO channel."""
    jobs = 20_000

    def run() -> None:
        channel = _core.Channel(ChannelSettings("pcie", 25 * 10**9, 5_000, 500))
        for now_ns in range(jobs):
            channel.transmit(2**21, 16, 32, now_ns)

    measure(jobs, run)
