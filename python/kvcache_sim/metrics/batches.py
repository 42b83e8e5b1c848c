"""How long offline batches took, and how much of that is their tail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.units import NS_PER_S

FIGURES = (
    Figure("offline.batches", "", "batches of requests, one after another"),
    Figure("offline.makespan_s", "s", "from the first request's start to the last token, pauses included"),
    Figure("offline.batch_s", "s", "mean time from a batch's start to its last token"),
    Figure("offline.tail_s", "s", "mean part of that in which at most a tenth of the batch was not done"),
)


def summarize_batches(rows: Mapping[str, NDArray[Any]], batch: int) -> dict[str, Any]:
    """Return the group ``offline`` of the summary; ``batch``: requests of a batch, by their numbers."""
    number = rows["request"] // batch
    took, tail = [], []
    done_ns = np.maximum(rows["finish_ns"], rows["arrival_ns"])
    for one in range(int(number.max(initial=-1)) + 1):
        ends = np.sort(done_ns[number == one])
        begin = int(rows["arrival_ns"][number == one].min())
        took.append(int(ends[-1]) - begin)
        tail.append(int(ends[-1] - ends[len(ends) - 1 - len(ends) // 10]))
    span_ns = int(done_ns.max() - rows["arrival_ns"].min()) if took else 0
    return {
        "offline": {
            "batches": len(took),
            "makespan_s": span_ns / NS_PER_S,
            "batch_s": sum(took) / len(took) / NS_PER_S if took else None,
            "tail_s": sum(tail) / len(tail) / NS_PER_S if tail else None,
        }
    }
