"""The times of a benchmark's rounds."""

from __future__ import annotations

from typing import Any


def round_s(benchmark: Any, figure: str = "min") -> float:
    """Return the minimum or mean time of a round in s; 1.0 if ``--benchmark-disable`` measures nothing."""
    return 1.0 if benchmark.disabled else float(benchmark.stats[figure])
