"""Requests per machine, and their balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def added(loads: NDArray[np.int64], machines: NDArray[Any]) -> NDArray[np.int64]:
    """Return the counts by machine with further requests added; new machines are appended."""
    counts = np.bincount(machines, minlength=len(loads)).astype(np.int64)
    counts[: len(loads)] += loads
    return counts


def summarize_loads(loads: NDArray[np.int64], counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the balance of requests: per machine, largest over mean, and Jain's index (1984).

    The figures cover the machines that requests are routed to; machines that only decode are left out.
    """
    if not loads.any():
        return {"requests": [], "max_over_mean": None, "jain": None}
    requests = [*loads.tolist(), *[0] * max(counters.get("machines", 0) - len(loads), 0)]
    routed = [load for m, load in enumerate(requests) if counters.get(f"machine.{m}.routed", 1)]
    total, squares = sum(routed), sum(load * load for load in routed)
    return {
        "requests": requests,
        "max_over_mean": max(routed) * len(routed) / total,
        "jain": total * total / (len(routed) * squares),
    }
