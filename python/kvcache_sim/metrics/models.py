"""Figures of each model of a fleet, and of the adapters that its requests ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.by_name import figures_by_name, summarize_by_name
from kvcache_sim.metrics.figure import Figure

FIGURES = (
    *figures_by_name("models", "model"),
    Figure("adapters.named", "", "adapters that the trace's requests ask for"),
)


def summarize_models(
    rows: Mapping[str, NDArray[Any]], model_of: NDArray[np.int32], names: Sequence[str]
) -> dict[str, Any]:
    """Return the group ``models`` of the summary, from rows of ``requests`` and each request's model."""
    return {"models": {"by_name": summarize_by_name(rows, model_of, names)}}


def summarize_adapters(names: Sequence[str]) -> dict[str, Any]:
    """Return the group ``adapters`` of the summary."""
    return {"adapters": {"named": len(names)}}
