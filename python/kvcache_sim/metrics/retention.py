"""What hints of the trace's rows dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_sim.metrics.figure import Figure

FIGURES = (Figure("retention.dropped_blocks", "blocks", "copies that hints of the trace's rows dropped"),)


def summarize_retention(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``retention`` of the summary, empty where nobody asks for hints."""
    dropped = counters.get("retention.dropped_blocks")
    return {} if dropped is None else {"retention": {"dropped_blocks": dropped}}
