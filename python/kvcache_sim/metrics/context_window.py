"""What the context window of the engine did to the requests of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.workload.trace import Trace

FIGURES = (
    Figure("context_window.max_model_len", "tokens", "the window: most tokens of a prompt and its answer"),
    Figure(
        "context_window.shortened",
        "",
        "requests that lost their oldest history to fit replica.max_model_len",
    ),
    Figure("context_window.dropped_tokens", "tokens", "prompt tokens they lost"),
    Figure(
        "context_window.rejected",
        "",
        "requests whose prompt and answer are longer than it, and were rejected",
    ),
)


def summarize_context_window(rejected: int, trace: Trace, max_model_len: int) -> dict[str, Any]:
    """Return ``context_window`` of the summary: the window, and whom it shortened or turned away."""
    return {
        "max_model_len": max_model_len,
        "shortened": int(np.count_nonzero(trace.dropped_tokens)),
        "dropped_tokens": int(trace.dropped_tokens.sum()),
        "rejected": rejected,
    }
