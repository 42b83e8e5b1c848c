"""What each model of a fleet got, what taking turns cost, and the adapters that were loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.by_name import figures_by_name, summarize_by_name
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.units import NS_PER_S

FIGURES = (
    Figure("models.changes", "", "how often a machine put one model to sleep and woke another"),
    Figure("models.change_s", "s", "time of machines in which they did that and served nobody"),
    *figures_by_name("models", "model", "waiting for its turn"),
    Figure("adapters.named", "", "adapters that the trace's requests ask for"),
    Figure("adapters.loads", "", "loads of adapters into slots of machines"),
    Figure("adapters.load_s", "s", "time that these loads took"),
    Figure("adapters.replaced", "", "adapters that gave their slot to another"),
)


def summarize_models(
    rows: Mapping[str, NDArray[Any]],
    model_of: NDArray[np.int32],
    names: Sequence[str],
    counters: Mapping[str, int],
) -> dict[str, Any]:
    """Return the group ``models`` of the summary, from rows of ``requests`` and each request's model."""
    return {
        "models": {
            "changes": counters.get("models.changes", 0),
            "change_s": counters.get("models.change_ns", 0) / NS_PER_S,
            "by_name": summarize_by_name(rows, model_of, names),
        }
    }


def summarize_adapters(names: Sequence[str], counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``adapters`` of the summary."""
    return {
        "adapters": {
            "named": len(names),
            "loads": counters.get("adapters.loads", 0),
            "load_s": counters.get("adapters.load_ns", 0) / NS_PER_S,
            "replaced": counters.get("adapters.replaced", 0),
        }
    }
