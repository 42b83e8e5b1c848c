"""What hints of the trace's rows dropped and kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("retention.dropped_blocks", "blocks", "copies that hints of the trace's rows dropped"),
    Figure("retention.pins", "prompts", "those that were kept from eviction for a time"),
    Figure(
        "retention.most_pinned_blocks",
        "blocks",
        "the most that were kept at one time, on all machines; what two prompts share counts twice",
    ),
)
_KEYS = ("dropped_blocks", "pins", "most_pinned_blocks")


def summarize_retention(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``retention`` of the summary, empty where nobody asks for hints."""
    found = {key: counters[f"retention.{key}"] for key in _KEYS if f"retention.{key}" in counters}
    return {"retention": found} if found else {}
