"""Progress of a sweep: one live line on a terminal, else a line every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvcache_sim.base.units import format_time_ns, significant
from kvcache_sim.cli.notices import warn
from kvcache_sim.metrics.names import metric_value

if TYPE_CHECKING:
    from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord
    from kvcache_sim.metrics.objectives import Objective

_PLAIN_S = 10.0


class SweepLine:
    """The state of a sweep as one line; ``show`` prints it."""

    def __init__(self, objective: Objective | None, is_terminal: bool) -> None:
        self._objective = objective
        self._is_terminal = is_terminal
        self._total = self._cached = self._ok = self._failed = 0
        self._work_done = 0.0
        self._best: float | None = None
        self._last_error = ""
        self._start = self._shown = time.monotonic()

    def begin(self, total: int, cached: int, damaged: Sequence[str]) -> None:
        """Store the number of cells, and name the damaged files that were set aside."""
        self._total, self._cached = total, cached
        for path in damaged:
            warn(f"damaged file set aside, its cell runs again: {path}")

    def cell_ended(self, cell: Cell, record: CellRecord) -> None:
        """Count a cell, and print the line when it is time."""
        self._ok += record.status == "ok"
        self._failed += record.status != "ok"
        if record.error:
            self._last_error = f"cell {cell.index}: {record.error}"
        if self._objective is not None:
            value = metric_value(record.summary, self._objective.metric)
            if value is not None and (
                self._best is None or self._objective.loss(value) < self._objective.loss(self._best)
            ):
                self._best = value
        now = time.monotonic()
        if now - self._shown >= (0.2 if self._is_terminal else _PLAIN_S):
            self._shown = now
            self._print(now)

    def end(self) -> None:
        """Clear the live line."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _print(self, now: float) -> None:
        done = self._ok + self._failed
        left = self._total - self._cached - done
        line = (
            f"{self._cached + done:,}/{self._total:,} cells, {self._failed:,} failed, {self._cached:,} cached"
        )
        line += f", ETA {format_time_ns((now - self._start) / done * left * 1e9)}"
        if self._best is not None and self._objective is not None:
            line += f", best {self._objective.metric} {significant(self._best)}"
        line += f", last error: {self._last_error}" if self._last_error else ""
        if self._is_terminal:
            width = max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


class Silent:
    """Shows nothing."""

    def begin(self, total: int, cached: int, damaged: Sequence[str]) -> None:
        """Do nothing."""

    def cell_ended(self, cell: Cell, record: CellRecord) -> None:
        """Do nothing."""


@contextmanager
def shown_sweep(quiet: bool, objective: Objective | None) -> Iterator[SweepLine | Silent]:
    """Yield the observer that suits stderr."""
    if quiet:
        yield Silent()
        return
    plain = not sys.stderr.isatty() or bool(os.environ.get("CI") or os.environ.get("NO_COLOR"))
    line = SweepLine(objective, is_terminal=not plain)
    try:
        yield line
    finally:
        line.end()
