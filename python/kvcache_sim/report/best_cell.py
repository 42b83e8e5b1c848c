"""The cells of a sweep as a table, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.report.picture import Table, Value

Row = Mapping[str, object]

_SHOWN = (
    "cache.token_hit_rate",
    "latency.ttft.avg",
    "latency.ttft.p50",
    "latency.ttft.p99",
    "latency.tpot.avg",
    "throughput.output_tokens_per_s",
    "slo.attainment",
    "goodput.requests_per_s",
)


def best_row(rows: Sequence[Row], metric: str, largest: bool = False) -> Row:
    """Return the first row with the least (or the most) of a figure; raises UsageError where none has it."""
    goal = Objective(metric, not largest)
    having = [row for row in rows if isinstance(row.get(metric), (int, float))]
    if not having:
        raise UsageError("no cell has this figure", got=metric)
    return min(having, key=lambda row: goal.loss(float(str(row[metric]))))


def best_by_default(rows: Sequence[Row], goals: Sequence[Objective]) -> tuple[Row, Objective] | None:
    """Return the best cell and its goal: the first goal, else TTFT p99, else the hit rate.

    None where cells do not differ in it.
    """
    usual = (Objective("latency.ttft.p99", True), Objective("cache.token_hit_rate", False))
    for goal in [*goals[:1]] or usual:
        values = {row.get(goal.metric) for row in rows}
        if len(values) > 1 and all(isinstance(value, (int, float)) for value in values):
            return best_row(rows, goal.metric, not goal.smaller_is_better), goal
    return None


def cell_table(rows: Sequence[Row], goals: Sequence[Objective] = (), best: Row | None = None) -> Table:
    """Return the cells with their settings and their first figures, those of the goals before all.

    The best cell's number has a star.
    """
    priced = Objective("cost.per_million_tokens", True)
    names = ["cell", *settings_of(rows), *figures_of(rows, [*goals, priced])]
    cells = tuple(
        (f"{row['cell']} *" if row is best else shown(row["cell"]), *(shown(row.get(n)) for n in names[1:]))
        for row in rows
    )
    return Table(tuple(name.removeprefix("set.") for name in names), cells)


def settings_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns of the settings that a sweep varies."""
    return [name for name in rows[0] if name.startswith("set.")] if rows else []


def figures_of(rows: Sequence[Row], goals: Sequence[Objective]) -> list[str]:
    """Return the columns of figures to show: the goals, then the most common figures."""
    wanted = dict.fromkeys([*(goal.metric for goal in goals), *_SHOWN])
    return [name for name in wanted if any(isinstance(row.get(name), (int, float)) for row in rows)]


def shown(value: object) -> Value:
    """Return a value as a cell of a table."""
    if value is None:
        return None
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else str(value)
