"""Figures by name: of a fleet's models and of tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.figure import Figure

FINISHED = STATUSES.index("finished")


def figures_by_name(group: str, one: str, waiting: str = "") -> tuple[Figure, ...]:
    """Return the figures of ``summarize_by_name``; ``waiting``: addition to the definition of TTFT."""
    of = f"{group}.by_name.<{one}>"
    return (
        Figure(f"{of}.requests", "", f"finished requests of a {one}"),
        Figure(f"{of}.tokens", "tokens", "their prompt and generated tokens"),
        Figure(f"{of}.token_hit_rate", "share", "share of its prompt tokens that was cached"),
        Figure(f"{of}.ttft_avg", "ms", f"its mean TTFT{waiting}"),
        Figure(f"{of}.ttft_p99", "ms", "its 99th percentile of TTFT"),
    )


def summarize_by_name(
    rows: Mapping[str, NDArray[Any]], number_of: NDArray[np.int32], names: Sequence[str]
) -> dict[str, Any]:
    """Return by name the finished requests, their tokens, hits and TTFT (ms); ``number_of``: by request."""
    done = rows["status"] == FINISHED
    numbers = number_of[rows["request"]]
    tokens = rows["input_tokens"] + rows["output_tokens"]
    ttft = (rows["first_token_ns"] - rows["arrival_ns"]) / NS_PER_MS
    by_name: dict[str, Any] = {}
    for number, name in enumerate(names):
        chosen = done & (numbers == number)
        prompts = int(rows["input_tokens"][chosen].sum())
        cached = int(rows["cached_prefix_length_used"][chosen].sum())
        by_name[name] = {
            "requests": int(chosen.sum()),
            "tokens": int(tokens[chosen].sum()),
            "token_hit_rate": cached / prompts if prompts else None,
            "ttft_avg": float(ttft[chosen].mean()) if chosen.any() else None,
            "ttft_p99": float(np.percentile(ttft[chosen], 99)) if chosen.any() else None,
        }
    return by_name
