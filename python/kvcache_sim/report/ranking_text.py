"""The verdict on a sweep in sentences: the best cell, cells equal to it, the sources of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.metrics.certainty import source_lines_of
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.report.best_cell import WORDS, against_text, figure_text, requests_text, settings_of
from kvcache_sim.report.ranking import Ranking, ordered
from kvcache_sim.report.unserved import unserved_text

Row = Mapping[str, Any]
_MOST_NAMED = 6
#: Figures that may distinguish cells of equal goal, in order.
_OTHERS = (
    Objective("latency.ttft.avg", True),
    Objective("cache.token_hit_rate", False),
    Objective("latency.tpot.avg", True),
)


def verdict(ranking: Ranking, noun: str = "cell", intervals: str | None = None) -> list[str]:
    """Return the sentences on the best cell and those equal to it; none where none is better.

    ``noun`` is the word for a cell. ``intervals`` are those of the best figure in words, if computed before.
    """
    sources = source_lines_of(ranking.rows)
    if ranking.goal is None:
        alike = f"no {noun} is better than another: TTFT p99 and hit rate are equal in all"
        return [alike, *sources] if len(ranking.rows) > 1 else sources
    best = ranking.order[0].row
    goal, metric = ranking.goal, ranking.goal.metric
    words, extreme = WORDS.get(metric, metric), "lowest" if goal.smaller_is_better else "highest"
    interval = requests_text(best, metric) if intervals is None else intervals
    value = f"{figure_text(metric, best[metric])}{interval}"
    equal = [row for row in ranking.first if row is not best]
    if equal:
        first = (
            f"{_cells([best, *equal], noun)} are equal in {words}: their differences are within the "
            f"interval; the {extreme} is {value} of {noun} {best['cell']}: {settings_text(best)}"
        )
    else:
        first = f"{noun} {best['cell']} has the {extreme} {words}, {value}: {settings_text(best)}"
        first += _next(ranking, noun)
    distinguished = _other_figure(ranking, noun) if equal else []
    unserved = [f"{noun} {best['cell']}: {text}"] if (text := unserved_text(best)) else []
    return [
        first,
        *unserved,
        *distinguished,
        *_saturated(ranking, noun),
        *_intervals(ranking, noun),
        *sources,
    ]


def settings_text(row: Row) -> str:
    """Return the settings that a sweep varies, by commas."""
    return ", ".join(f"{name.removeprefix('set.')}={row[name]}" for name in settings_of([row]))


def _other_figure(ranking: Ranking, noun: str) -> list[str]:
    """Return the first other figure that distinguishes the equal cells, with the best of them by it."""
    for goal in _OTHERS:
        if ranking.saturated and goal.metric.startswith("latency."):
            continue
        if goal == ranking.goal or not all(isinstance(row.get(goal.metric), float) for row in ranking.first):
            continue
        order = ordered(ranking.first, goal)
        if order[1].rank > 1 and order[1].against is not None:
            best, second = order[0].row, order[1]
            extreme = "lowest" if goal.smaller_is_better else "highest"
            assert second.against is not None
            return [
                f"{WORDS[goal.metric]} distinguishes them: {noun} {best['cell']} has the {extreme}, "
                f"{figure_text(goal.metric, best[goal.metric])}{requests_text(best, goal.metric)} "
                f"(next is {noun} {second.row['cell']}: "
                f"{against_text(second.against)})"
            ]
    return []


def _next(ranking: Ranking, noun: str) -> str:
    """Return the figure of the second cell against the best."""
    second = ranking.order[1] if len(ranking.order) > 1 else None
    if second is None or second.against is None:
        return ""
    return f" (next is {noun} {second.row['cell']}: {against_text(second.against)})"


def _saturated(ranking: Ranking, noun: str) -> list[str]:
    if not ranking.saturated:
        return []
    if len(ranking.saturated) == len(ranking.rows):
        return [
            f"all {noun}s are saturated: their latency grows with the trace, so they are ranked by throughput"
        ]
    which = _cells(ranking.saturated, noun)
    verb, pronoun = ("is", "it follows") if len(ranking.saturated) == 1 else ("are", "they follow")
    return [f"{which} {verb} saturated: {pronoun} the others by throughput, not ranked by latency"]


def _intervals(ranking: Ranking, noun: str) -> list[str]:
    """Return the origin of the intervals, or the reason for which there are none."""
    if not any(one.against is not None for one in ranking.order):
        few = f"no interval: fewer than 50 finished requests in a {noun}, or no figure by batch"
        return [few] if len(ranking.order) > 1 else []
    if ranking.seeds > 1:
        return [f"figures are means of {ranking.seeds} seeds; intervals are 95 % over these seeds, in pairs"]
    repeats = " (--repeats)" if noun == "cell" else ""
    return [
        f"intervals are 95 % over {ranking.batches} batches of time of the requests, in pairs; they do not "
        f"cover other seeds{repeats}"
    ]


def _cells(rows: Sequence[Row], noun: str) -> str:
    numbers = [str(row["cell"]) for row in rows[:_MOST_NAMED]]
    if len(rows) > _MOST_NAMED:
        numbers.append(f"{len(rows) - _MOST_NAMED:,} more")
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    return f"{noun}s {', '.join(numbers[:-1])} and {numbers[-1]}"
