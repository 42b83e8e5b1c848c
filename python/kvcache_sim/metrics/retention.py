"""Figures of the copies that hints of the trace's rows dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_sim.metrics.figure import Figure

_DROPPED = "retention.dropped_blocks"

FIGURES = (Figure(_DROPPED, "blocks", "copies that hints of the trace's rows dropped"),)


def summarize_retention(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``retention`` of the summary, empty where nobody asks for hints."""
    return {"retention": {"dropped_blocks": counters[_DROPPED]}} if _DROPPED in counters else {}
