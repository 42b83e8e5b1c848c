"""Who is admitted next: one small class an order, one row here.

| name | first is |
|---|---|
| `fcfs` | who came first |
| `longest-prefix` | who has the longest cached prefix |
| `shortest-first` | who has the fewest tokens left to compute |
| `priority` | the smallest `priority` of the trace, then who came first |
| `later-turns` | who is further on in a session: later turns before first ones |
| `program-fcfs` | whose job began first: the first request of its agent, with all sub-agents, or session |
| `ragcache` | the largest ratio of cached to computed tokens; who was passed too often goes first |
| `look_ahead` | scheduler-aware eviction: what the next requests of the queue will reuse is evicted last |
| `waiting_queue` | the queue of a replica: first come first served, or by a queue order |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.rows import Rows
from kvcache_sim.serving.queue.order import QueueOrder

#: The requests get the starts of their jobs as priorities when they are read.
PROGRAM_FCFS = "program-fcfs"

ORDERS: Rows[Callable[[], QueueOrder]] = Rows(
    "kvcache_sim.serving.queue",
    {
        "longest-prefix": "orders:LongestPrefix",
        "shortest-first": "orders:ShortestFirst",
        "priority": "orders:Priority",
        "later-turns": "orders:LaterTurns",
        PROGRAM_FCFS: "orders:Priority",
        "ragcache": "orders:RagCache",
    },
)


def _key(given: Any, asked: tuple[Any, ...], made: tuple[Any, ...]) -> tuple[float, ...]:
    if isinstance(given, tuple):
        for number in given:
            if type(number) is not int and not (isinstance(number, Real) and not math.isnan(number)):
                break
        else:
            return given
    raise ValueError("a tuple of numbers")


QUEUE_ORDER = Kind("queue order", "kvsim.queue_order", ORDERS, {"key": _key}, none="fcfs")


def served_as(name: str) -> str:
    """Return the name under which schedulers know an order: ``priority`` for ``program-fcfs``."""
    return "priority" if name == PROGRAM_FCFS else name


def make_order(name: str) -> QueueOrder | None:
    """Return the order of that name (or ``file.py:Name``), None for first come first served."""
    if name == "fcfs":
        return None
    order: QueueOrder = QUEUE_ORDER.make(name)
    return order
