"""Finished runs written by hand, as reports read them, without a directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kvcache_sim.metrics.columns import EVENT_COLUMNS, SERIES_COLUMNS
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.workload.trace import Trace
from support.product.reports import Column, FinishedRun


def coded(words: list[str]) -> CodedText:
    """Return a column of text."""
    names = tuple(dict.fromkeys(words))
    return CodedText(np.array([names.index(word) for word in words], np.int32), names)


def columns_of(rows: list[dict[str, Any]], contract: dict[str, Column]) -> dict[str, Any]:
    """Return rows, of which each names what is not nought or empty, as the columns of a table."""
    return {
        name: coded([row.get(name, "") for row in rows])
        if column.dtype == "str"
        else np.array([row.get(name, 0) for row in rows], column.dtype)
        for name, column in contract.items()
    }


@dataclass
class Written:
    """A run in memory: its parts as they would be read from files."""

    rows: dict[str, Any]
    summary: dict[str, Any] = field(default_factory=dict)
    scenario: str = "tiers: {gpu: {capacity: 9 blocks}}\n"
    manifest: dict[str, Any] = field(default_factory=dict)
    logged: list[dict[str, Any]] = field(default_factory=list)
    sampled: list[dict[str, Any]] = field(default_factory=list)
    path: Path = Path("/written/A")

    def requests(self) -> dict[str, Any]:
        return self.rows

    def events(self) -> dict[str, Any]:
        return columns_of(self.logged, EVENT_COLUMNS)

    def series(self) -> dict[str, Any]:
        return columns_of(self.sampled, SERIES_COLUMNS)

    def prefixes(self) -> None:
        return None

    def junctions(self) -> None:
        return None


def written(rows: dict[str, Any], label: str = "A", trace: Trace | None = None, **parts: Any) -> FinishedRun:
    """Return a finished run of request columns; ``parts`` are those of ``Written``."""
    return FinishedRun(Written(rows, **parts), label, trace)
