"""What speculative decoding drafted and how much of it was accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("speculation.steps", "", "decode steps of a request that checked drafts"),
    Figure("speculation.drafted_tokens", "tokens", "tokens drafted"),
    Figure("speculation.accepted_tokens", "tokens", "of these, accepted; those behind an answer's end too"),
    Figure("speculation.acceptance", "share", "accepted / drafted"),
    Figure("speculation.mean_length", "tokens", "1 + accepted / steps: tokens that a step brings a request"),
    Figure("speculation.by_position", "share", "by position the share of steps that accepted a draft there"),
)


def summarize_speculation(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return ``speculation`` of the summary in a mapping, which is empty where nothing was drafted."""
    if "speculation.steps" not in counters:
        return {}
    steps, drafted = counters["speculation.steps"], counters["speculation.drafted"]
    positions = range(sum(name.startswith("speculation.accepted.") for name in counters))
    accepted = [counters[f"speculation.accepted.{position}"] for position in positions]
    figures = {
        "steps": steps,
        "drafted_tokens": drafted,
        "accepted_tokens": sum(accepted),
        "acceptance": sum(accepted) / drafted if drafted else None,
        "mean_length": 1 + sum(accepted) / steps if steps else None,
        "by_position": [count / steps for count in accepted],
    }
    return {"speculation": figures}
