"""Requests that a run did not serve: rejected prompts, full queues, requests that failed with a machine."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.base.units import format_percent
from kvcache_sim.metrics.names import flatten

REJECTED, TURNED_AWAY, FAILED, _ARRIVED = (
    f"requests.{name}" for name in ("rejected", "turned_away", "failed", "arrived")
)
UNSERVED = (REJECTED, TURNED_AWAY, FAILED)


def unserved_share(summary: Mapping[str, object]) -> float | None:
    """Return the share of arrived requests that no machine served; None without any arrival."""
    *counts, arrived = _counts(summary)
    return sum(counts) / arrived if arrived else None


def unserved_text(summary: Mapping[str, object]) -> str:
    """Return ``29.0 % of requests were rejected (174 of 600)`` of a summary or a row; "" if none was."""
    *counts, arrived = _counts(summary)
    words = zip(counts, ("were rejected", "met a full queue", "failed with their machine"), strict=True)
    said = (
        f"{format_percent(n / arrived)} of requests {what} ({n:,} of {arrived:,})" for n, what in words if n
    )
    return ", ".join(said)


def _counts(summary: Mapping[str, object]) -> list[int]:
    flat = flatten(summary) if "requests" in summary else summary
    return [int(str(flat.get(name) or 0)) for name in (*UNSERVED, _ARRIVED)]
