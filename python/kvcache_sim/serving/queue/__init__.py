"""The order of admission from the queue: an order of the core or a plug-in.

| name | first is |
|---|---|
| `fcfs` | the earliest arrival |
| `longest-prefix` | the longest cached prefix |
| `shortest-first` | the fewest tokens left to compute |
| `priority` | the smallest `priority` of the trace, then the earliest arrival |
| `later-turns` | the furthest turn of a session |
| `program-fcfs` | the job that started first: first request of its agent (with sub-agents) or session |
| `ragcache` | the largest ratio of cached to computed tokens; a request passed too often goes first |

The rules are in ``rust/core/src/machine/queue.rs``, and in ``spec/scheduler.py`` to read.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from kvcache_sim.policies.plugins.choice import Kind

#: Requests get the start times of their jobs as priorities when the trace is read.
PROGRAM_FCFS = "program-fcfs"

ORDERS = ("longest-prefix", "shortest-first", "priority", "later-turns", PROGRAM_FCFS, "ragcache")


def _key(given: Any, asked: tuple[Any, ...], made: tuple[Any, ...]) -> tuple[float, ...]:
    if isinstance(given, tuple):
        for number in given:
            if type(number) is not int and not (isinstance(number, Real) and not math.isnan(number)):
                break
        else:
            return given
    raise ValueError("a tuple of numbers")


QUEUE_ORDER = Kind("queue order", "kvsim.queue_order", {}, {"key": _key}, none="fcfs", in_core=ORDERS)


def served_as(name: str) -> str:
    """Return the scheduler's name of an order: ``priority`` for ``program-fcfs``."""
    return "priority" if name == PROGRAM_FCFS else name
