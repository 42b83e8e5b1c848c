"""The cells of a sweep in order of a figure, against the best with intervals; equal ones share a rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvcache_sim.metrics.batches import BATCHES
from kvcache_sim.metrics.names import unit_of
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.metrics.saturation import queue_grows

Row = Mapping[str, Any]

_TTFT, _HITS = Objective("latency.ttft.p99", True), Objective("cache.token_hit_rate", False)
_THROUGHPUT = Objective("throughput.output_tokens_per_s", False)
#: 97.5 % quantiles of Student's t distribution for 1, 2, … degrees of freedom.
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
      2.12, 2.11, 2.101, 2.093)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Against:
    """A figure of a cell against another's: the ratio, of a share the difference, with its 95 % interval."""

    value: float
    low: float
    high: float
    is_share: bool

    @property
    def is_equal(self) -> bool:
        """True if the interval holds no difference."""
        return self.low <= (0.0 if self.is_share else 1.0) <= self.high


@dataclass(frozen=True, slots=True)
class Ranked:
    """A cell in the order: its row, its rank from 1, and its figure against that of the first cell."""

    row: Row
    rank: int
    against: Against | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """All finished cells, one row for all seeds of the same settings, and their order by a goal."""

    rows: tuple[Row, ...]
    #: None where no goal distinguishes the cells; then nothing is ranked.
    goal: Objective | None
    order: tuple[Ranked, ...]
    #: Seeds of each row.
    seeds: int
    #: Cells whose waits grow with the trace, so not ranked by latency: all, or those behind the others.
    saturated: tuple[Row, ...] = ()

    @property
    def first(self) -> tuple[Row, ...]:
        """The cells of rank 1: the best and those equal to it."""
        return tuple(one.row for one in self.order if one.rank == 1)

    @property
    def batches(self) -> int:
        """The batches of time of each cell; 0 where there are none."""
        return max(
            (len(values) for row in self.rows for values in (row.get(BATCHES) or {}).values()), default=0
        )


def rank_cells(rows: Sequence[Row], goals: Sequence[Objective] = ()) -> Ranking:
    """Return the finished cells in order of the first goal, without one of TTFT p99, else of the hit rate.

    A cell has the rank of the best cell from which its interval does not distinguish it. Intervals are over
    seeds where there are several, else over batches of time, each seed or batch of two cells together.
    Without a goal cells whose waits grow with the trace are not ranked by latency: they follow by throughput.
    """
    done = [row for row in rows if row["status"] == "ok"]
    merged, seeds = merge_seeds(done)
    full = () if goals else tuple(row for row in merged if queue_grows(row))
    usual = (_THROUGHPUT, _HITS) if full and len(full) == len(merged) else (_TTFT, _HITS)
    free = [row for row in merged if row not in full] or merged
    for goal in goals[:1] or usual:
        values = {row.get(goal.metric) for row in merged}
        if len(values) > 1 and all(isinstance(value, (int, float)) for value in values):
            order = ordered(free, goal)
            if len(free) < len(merged):
                behind = ordered(full, _THROUGHPUT)
                order += [Ranked(one.row, len(free) + one.rank, None) for one in behind]
            return Ranking(tuple(merged), goal, tuple(order), seeds, full)
    return Ranking(tuple(merged), None, (), seeds, full)


def rank_all(rows: Sequence[Row], goal: Objective) -> Ranking:
    """Return finished cells in order of a goal that all have, saturated or not; see ``rank_cells``."""
    return Ranking(tuple(rows), goal, tuple(ordered(rows, goal)), 1)


def ordered(rows: Sequence[Row], goal: Objective) -> list[Ranked]:
    """Return rows in order of a goal; a row has the rank of the best row that it equals."""
    ordered = sorted(rows, key=lambda row: goal.loss(float(row[goal.metric])))
    ranked: list[Ranked] = []
    leader, rank = ordered[0], 1
    for number, row in enumerate(ordered, 1):
        apart = against(leader, row, goal.metric)
        is_equal = row[goal.metric] == leader[goal.metric] if apart is None else apart.is_equal
        if not is_equal:
            leader, rank = row, number
        ranked.append(Ranked(row, rank, against(ordered[0], row, goal.metric) if number > 1 else None))
    return ranked


def against(base: Row, row: Row, metric: str) -> Against | None:
    """Return a figure of a row against that of a base row; None without seeds and batches."""
    is_share = unit_of(metric) == "share"
    for replicates, is_jackknife in ((SEEDS, False), (BATCHES, True)):
        ours, theirs = ((cell.get(replicates) or {}).get(metric, ()) for cell in (row, base))
        if len(ours) < 2 or len(ours) != len(theirs) or (not is_share and min(*ours, *theirs) <= 0):
            continue
        pairs = list(zip(ours, theirs, strict=True))
        changes = [a - b if is_share else math.log(a / b) for a, b in pairs]
        middle, half = _interval(changes, is_jackknife)
        if is_jackknife:
            a, b = float(row[metric]), float(base[metric])
            middle = a - b if is_share else math.log(a / b)
        value, low, high = (
            end if is_share else math.exp(end) for end in (middle, middle - half, middle + half)
        )
        return Against(value, low, high, is_share)
    return None


def requests_interval(row: Row, metric: str) -> Against | None:
    """Return a figure of a row with its 95 % interval over seeds or batches, relative to its value.

    That of a share is in points. None without seeds and batches.
    """
    value = row[metric]
    alone = {name: {metric: [value] * len(values)} for name in (SEEDS, BATCHES)
             if (values := (row.get(name) or {}).get(metric))}  # fmt: skip
    return against({metric: value, **alone}, row, metric)


def _interval(changes: Sequence[float], is_jackknife: bool) -> tuple[float, float]:
    """Return the mean of some changes and the half-width of its 95 % interval."""
    count = len(changes)
    mean = math.fsum(changes) / count
    squares = math.fsum((change - mean) ** 2 for change in changes)
    variance = squares * (count - 1) / count if is_jackknife else squares / (count - 1) / count
    return mean, _T[min(count - 1, len(_T)) - 1] * math.sqrt(variance)


#: The key of a row under which each figure has its values by seed.
SEEDS = "seeds"


def merge_seeds(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Return one row for all seeds of the same settings, with the means of its figures, and how many seeds.

    The row keeps the number of its first cell; ``seeds`` has the values of each figure.
    """
    if not any(row.get("repeat") for row in rows):
        return list(rows), 1
    groups: dict[str, list[Row]] = {}
    for row in rows:
        settings = {name: row[name] for name in row if name.startswith("set.") and name != "set.seed"}
        groups.setdefault(repr(settings), []).append(row)
    return [_mean_row(group) for group in groups.values()], max(map(len, groups.values()))


def _mean_row(group: Sequence[Row]) -> Row:
    merged: dict[str, Any] = {name: value for name, value in group[0].items() if name != "set.seed"}
    by_seed: dict[str, list[float]] = {}
    for name, first in group[0].items():
        values = [row.get(name) for row in group]
        if name == "saturated":
            merged[name] = sum(value is True for value in values) * 2 > len(values)
        elif name not in ("cell", "repeat") and not name.startswith("set.") and _are_numbers(values):
            by_seed[name] = [float(value) for value in values if value is not None]
            merged[name] = math.fsum(by_seed[name]) / len(values) if len(set(values)) > 1 else first
    return {**merged, SEEDS: by_seed}


def _are_numbers(values: Sequence[object]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
