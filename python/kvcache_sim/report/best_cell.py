"""The cells of a sweep as a table of figures with units, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_percent, format_time_ms, significant
from kvcache_sim.metrics.certainty import band
from kvcache_sim.metrics.names import unit_of
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.report.picture import Table, Value
from kvcache_sim.report.ranking import Against, Ranking, requests_interval
from kvcache_sim.report.unserved import FAILED, REJECTED, TURNED_AWAY, UNSERVED

Row = Mapping[str, Any]

#: Figures shown, in order, with their words.
WORDS = {
    "cost.per_hour": "cost/h",
    "cost.per_million_output_tokens": "cost/M output tokens",
    "cache.token_hit_rate": "hit rate",
    "latency.ttft.avg": "TTFT mean",
    "latency.ttft.p50": "TTFT p50",
    "latency.ttft.p99": "TTFT p99",
    "latency.tpot.avg": "TPOT mean",
    "throughput.output_tokens_per_s": "output tokens/s",
    "slo.attainment": "SLO attainment",
    "goodput.requests_per_s": "goodput requests/s",
    REJECTED: "rejected",
    TURNED_AWAY: "turned away",
    FAILED: "failed",
}


def best_row(rows: Sequence[Row], metric: str, largest: bool = False) -> Row:
    """Return the first row with the least (or the most) of a figure; raises UsageError where none has it."""
    goal = Objective(metric, not largest)
    having = [row for row in rows if isinstance(row.get(metric), (int, float))]
    if not having:
        raise UsageError("no cell has this figure", got=metric)
    return min(having, key=lambda row: goal.loss(float(str(row[metric]))))


def ranked_table(
    ranking: Ranking, chosen: Sequence[Row] | None = None, goals: Sequence[Objective] = ()
) -> Table:
    """Return the cells, all or those chosen, with settings and figures as text; stars mark those of rank 1.

    The goal's figure comes first, then its value against the best with the interval.
    """
    return _table(ranking, chosen, goals, lambda name: WORDS.get(name, name), figure_text)


def number_table(
    ranking: Ranking, chosen: Sequence[Row] | None = None, goals: Sequence[Objective] = ()
) -> Table:
    """Return the same with figures as numbers, their units in the headings: a table to sort and to copy."""
    return _table(ranking, chosen, goals, axis_title, lambda name, value: shown(value))


def _table(
    ranking: Ranking,
    chosen: Sequence[Row] | None,
    goals: Sequence[Objective],
    heading: Callable[[str], str],
    text: Callable[[str, object], Value],
) -> Table:
    rows = ranking.rows if chosen is None else chosen
    settings = settings_of(rows)
    figures = figures_of(rows, [*([ranking.goal] if ranking.goal else []), *goals])
    headings = ["cell", *(name.removeprefix("set.") for name in settings), *map(heading, figures)]
    is_apart = any(one.against is not None for one in ranking.order)
    if is_apart:
        headings.insert(2 + len(settings), "against the best")
    cells = []
    for row in rows:
        star = " *" if any(row is one for one in ranking.first) else ""
        line = [
            f"{row['cell']}{star}" if star else shown(row["cell"]),
            *(shown(row.get(n)) for n in settings),
        ]
        values = [text(name, row.get(name)) for name in figures]
        if is_apart:
            values.insert(1, _against_best(ranking, row))
        cells.append((*line, *values))
    return Table(tuple(headings), tuple(cells))


def _against_best(ranking: Ranking, row: Row) -> str:
    if row is ranking.order[0].row:
        return "best"
    if len(ranking.saturated) < len(ranking.rows) and any(row is one for one in ranking.saturated):
        return "saturated"
    return next((against_text(one.against) for one in ranking.order if one.row is row), "–")


def against_text(against: Against | None) -> str:
    """Return a figure against the best: ``equal (0.97–1.08 ×)``, ``1.18 × (1.05–1.3)``; points of a share."""
    if against is None:
        return "–"
    if against.is_share:
        value, low, high = (f"{100 * end:+.1f}" for end in (against.value, against.low, against.high))
        return f"equal ({low} to {high} points)" if against.is_equal else f"{value} points ({low} to {high})"
    value, low, high = (f"{end:.3g}" for end in (against.value, against.low, against.high))
    if low == high == "1":
        return "equal within 0.5 %"
    return f"equal ({low}–{high} ×)" if against.is_equal else f"{value} × ({low}–{high})"


def requests_text(row: Row, metric: str) -> str:
    """Return the interval of a figure of a row over its requests: ``(requests ±4 %)``; "" without one."""
    found = requests_interval(row, metric)
    if found is None:
        return ""
    if not found.is_share:
        return f" (requests {band(found.low, found.high)})"
    return f" (requests ±{significant(50 * (found.high - found.low))} points)"


def axis_title(name: str) -> str:
    """Return a figure's words with its unit: ``TTFT p99 [ms]``."""
    unit, words = unit_of(name), WORDS.get(name, name)
    return words if not unit or words.endswith("/s") or unit == "cost" else f"{words} [{unit}]"


def figure_text(name: str, value: object) -> str:
    """Return a figure as text with its unit, three significant digits; – where there is none."""
    if not isinstance(value, (int, float)):
        return "–"
    unit = unit_of(name)
    if unit == "ms":
        return format_time_ms(value)
    return format_percent(value) if unit == "share" else significant(value)


def settings_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns of the settings that a sweep varies."""
    return [name for name in rows[0] if name.startswith("set.")] if rows else []


def figures_of(rows: Sequence[Row], goals: Sequence[Objective]) -> list[str]:
    """Return the columns of figures to show: the goals, then the most common figures."""
    wanted = dict.fromkeys([*(goal.metric for goal in goals), *WORDS])
    found = [name for name in wanted if any(isinstance(row.get(name), (int, float)) for row in rows)]
    return [name for name in found if name not in UNSERVED or any(row.get(name) for row in rows)]


def shown(value: object) -> Value:
    """Return a value as a cell of a table."""
    if value is None:
        return None
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else str(value)
