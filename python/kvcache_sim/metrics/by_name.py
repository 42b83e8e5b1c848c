"""What those got who are told apart by name: a fleet's models, its tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.units import NS_PER_MS

FINISHED = STATUSES.index("finished")


def summarize_by_name(
    rows: Mapping[str, NDArray[Any]], number_of: NDArray[np.int32], names: Sequence[str]
) -> dict[str, Any]:
    """Return by name requests, tokens, hits and TTFT (ms) of the finished ones; ``number_of``: by request."""
    done = rows["status"] == FINISHED
    numbers = number_of[rows["request"]]
    tokens = rows["input_tokens"] + rows["output_tokens"]
    ttft = (rows["first_token_ns"] - rows["arrival_ns"]) / NS_PER_MS
    by_name: dict[str, Any] = {}
    for number, name in enumerate(names):
        own = done & (numbers == number)
        prompts = int(rows["input_tokens"][own].sum())
        cached = int(rows["cached_prefix_length_used"][own].sum())
        by_name[name] = {
            "requests": int(own.sum()),
            "tokens": int(tokens[own].sum()),
            "token_hit_rate": cached / prompts if prompts else None,
            "ttft_avg": float(ttft[own].mean()) if own.any() else None,
            "ttft_p99": float(np.percentile(ttft[own], 99)) if own.any() else None,
        }
    return by_name
