"""Further candidates of a search for capacity, from the rates of those that ended: counts and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sizing.counts import next_count
from kvcache_sim.extras.study.sizing.question import Answer, Row, load_of
from kvcache_sim.extras.study.sizing.splits import next_splits
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Setting, canonical_json
from kvcache_sim.extras.study.sweeps.plan import Plan

MACHINES, PREFILL, DECODE = "cluster.machines", "pools.prefill", "pools.decode"
#: The settings that a search adds.
ADDED = (MACHINES, PREFILL, DECODE)

Settings = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that was searched: its settings, machines and rate; None: it holds none that was tried."""

    settings: Settings
    machines: int
    rate_per_s: float | None

    @property
    def prefill(self) -> int:
        """The number of its prefill machines, 0 without pools."""
        count = self.settings.get(PREFILL) or 0
        return count if isinstance(count, int) else 0


@dataclass(frozen=True, slots=True)
class Further:
    """The candidates that a search adds: counts between those of the grid, and splits into pools.

    Called by ``run_sweep`` with all cells that ended and their records.
    """

    plan: Plan
    #: Lays out settings as cells; raises UsageError for settings that no scenario accepts.
    lay_out: Callable[[Sequence[Settings]], Sequence[Cell]]
    need_per_s: float | None
    #: Machines are added in groups of so many: the data-parallel ranks of an engine.
    unit: int
    pools: bool
    limits: Mapping[str, str]

    def __call__(self, cells: Sequence[Cell], records: Mapping[str, CellRecord]) -> list[Cell]:
        """Return the cells to run next; none where the answer is known, or a candidate failed."""
        if self.plan.shard.of > 1:
            return []
        tried = [found for cell in cells if (found := tried_of(cell, records)) is not None]
        if len(tried) < len(cells):
            return []
        wanted = list(self._splits(tried)) if self.pools else []
        if not wanted and self.need_per_s is not None:
            wanted = list(self._counts(tried, self.need_per_s))
        try:
            added = self.lay_out(wanted) if wanted else []
        except UsageError:
            return []  # the text names the counts that were not tried
        return [replace(cell, index=len(cells) + n) for n, cell in enumerate(added)]

    def answer(self, rows: Sequence[Row]) -> Answer:
        """Return the answer to the question from the rows of all candidates."""
        whole = self.plan.shard.of == 1
        return Answer(
            tuple(rows), self.need_per_s, self.unit if whole else None, self.pools and whole, self.limits
        )

    def _splits(self, tried: Sequence[Tried]) -> Iterator[Settings]:
        for group in groups_of(tried, (PREFILL, DECODE)):
            rates = {one.prefill: one.rate_per_s for one in group if one.prefill}
            count = group[0].machines
            for split in next_splits(rates, count):
                yield {**group[0].settings, PREFILL: split, DECODE: count - split}

    def _counts(self, tried: Sequence[Tried], need_per_s: float) -> Iterator[Settings]:
        for group in groups_of(tried, ADDED):
            rates = rates_by_count(group)
            count = next_count(rates, need_per_s, self.unit) if MACHINES in group[0].settings else None
            if count is not None:
                pools = {PREFILL: 0, DECODE: 0} if self.pools else {}
                yield {**group[0].settings, MACHINES: count, **pools}


def tried_of(cell: Cell, records: Mapping[str, CellRecord]) -> Tried | None:
    """Return a cell as a candidate that was searched; None where it has not ended well."""
    record = records.get(cell.cell_id)
    if record is None or record.status != "ok":
        return None
    capacity = record.summary["capacity"]
    assert isinstance(capacity, Mapping)
    return Tried(cell.settings, capacity["machines"], capacity.get("sessions") or capacity["rate_per_s"])


def tried_of_row(row: Mapping[str, object]) -> Tried:
    """Return a row of the answer as a candidate that was searched."""
    settings: dict[str, Any] = {n.removeprefix("set."): v for n, v in row.items() if n.startswith("set.")}
    rate = row.get(f"capacity.{load_of(row).figure}")
    return Tried(
        settings, int(str(row["capacity.machines"])), rate if isinstance(rate, (int, float)) else None
    )


def groups_of(tried: Sequence[Tried], but: Sequence[str]) -> list[list[Tried]]:
    """Return the candidates in groups of equal settings, ``but`` for those named."""
    groups: dict[str, list[Tried]] = {}
    for one in tried:
        common = {name: value for name, value in one.settings.items() if name not in but}
        # splits of a number of machines are one group even where the number is no setting
        groups.setdefault(canonical_json([common, None if MACHINES in but else one.machines]), []).append(one)
    return list(groups.values())


def rates_by_count(group: Sequence[Tried]) -> dict[int, float | None]:
    """Return the highest rate of each number of machines."""
    rates: dict[int, float | None] = {}
    for one in group:
        before = rates.get(one.machines)
        rates[one.machines] = max(filter(None, (before, one.rate_per_s)), default=None)
    return rates
