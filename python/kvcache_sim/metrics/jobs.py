"""Job completion times: from an agent's or session's first arrival to the last token of its last request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.durations import Durations
from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("jobs.count", "", "agents with their sub-agents, or sessions, of a trace in which requests wait"),
    Figure("jobs.completed", "", "of these, jobs of which every request finished"),
    Figure(
        "jobs.completion.<statistic>",
        "ms",
        "of completed jobs: from the first arrival to the last token, tool calls and pauses included",
    ),
    Figure("jobs.serving.<statistic>", "ms", "of completed jobs: the sum of their requests' E2E"),
)


class JobTotals:
    """Jobs of a run, rows added in batches; ``jobs``: the number of each request's job."""

    def __init__(self, jobs: NDArray[np.int32]) -> None:
        self._jobs = jobs
        count = int(jobs.max(initial=-1)) + 1
        self._open = np.bincount(jobs, minlength=count)
        self._first_ns = np.full(count, np.iinfo(np.int64).max)
        self._last_ns = np.zeros(count, np.int64)
        self._serving_ns = np.zeros(count, np.int64)

    def add_finished(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add the columns of finished requests."""
        jobs = self._jobs[rows["request"]]
        np.subtract.at(self._open, jobs, 1)
        np.minimum.at(self._first_ns, jobs, rows["arrival_ns"])
        np.maximum.at(self._last_ns, jobs, rows["finish_ns"])
        np.add.at(self._serving_ns, jobs, rows["finish_ns"] - rows["arrival_ns"])

    def figures(self) -> dict[str, Any]:
        """Return the group ``jobs`` of the summary."""
        done = self._open == 0
        completion, serving = Durations(), Durations()
        completion.add((self._last_ns - self._first_ns)[done])
        serving.add(self._serving_ns[done])
        return {
            "jobs": {
                "count": len(done),
                "completed": int(done.sum()),
                "completion": completion.describe(),
                "serving": serving.describe(),
            }
        }
