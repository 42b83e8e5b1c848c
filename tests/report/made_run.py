"""A run as its parts are before it is summed up, of rows made by hand."""

from typing import Any

import numpy as np
from kvcache_sim.metrics.columns import EVENT_COLUMNS
from kvcache_sim.metrics.run import COUNTERS, CountedTimes, EngineUse, Run
from report.finished_rows import columns_of
from support.request_rows import rows


def made_run(count: int, series: Any = None, **columns: Any) -> Run:
    """Return a run of so many requests, of each counter 5, and of four times between tokens."""
    itl = CountedTimes(np.array([10, 30]), np.array([3, 1]))
    events = columns_of([], EVENT_COLUMNS)
    counters, engine = dict.fromkeys(COUNTERS, 5), EngineUse("native", 44, 99)
    end_ns = 4_000_000_000
    return Run(
        rows(count, **columns), series or {}, events, counters, itl, "e" * 64, "f" * 64, engine, end_ns
    )
