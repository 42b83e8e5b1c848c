"""What a sweep will cost, before it runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from kvcache_sim.sweeps.cell import CellRecord
from kvcache_sim.sweeps.plan import Plan

#: CPU seconds of one unit of work where no cell has ended yet: a request of the conversation trace.
DEFAULT_S_PER_WORK = 60e-6


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many cells there are and how long the rest takes."""

    rows: int
    distinct: int
    finished: int
    #: CPU seconds of the cells still to run, and whether measured cells or a default gave the rate.
    cpu_s: float
    is_measured: bool

    def wall_s(self, jobs: int) -> float:
        """Return the time on ``jobs`` workers, ideal packing."""
        return self.cpu_s / max(1, min(jobs, self.distinct - self.finished))


def estimate(plan: Plan, records: Mapping[str, CellRecord]) -> Estimate:
    """Return the estimate for the cells of a plan without a finished record."""
    cells = plan.unique_cells()
    finished = {name for name, record in records.items() if record.status == "ok"}
    rates = [
        records[cell.cell_id].elapsed_s / cell.work
        for cell in cells
        if cell.cell_id in finished and cell.work > 0
    ]
    rate = statistics.median(rates) if rates else DEFAULT_S_PER_WORK
    work = sum(cell.work for cell in cells if cell.cell_id not in finished)
    return Estimate(len(plan.own_cells()), len(cells), len(finished), work * rate, bool(rates))
