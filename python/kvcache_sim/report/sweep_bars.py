"""The cells of a sweep as bars of the figure that ranks them, with intervals, the best first."""

from __future__ import annotations

from typing import Any

from kvcache_sim.metrics.names import unit_of
from kvcache_sim.report.best_cell import axis_title, number_table, settings_of
from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.picture import Picture, Value
from kvcache_sim.report.ranking import Ranking, requests_interval

#: Bars that can be read on one page.
_MOST_BARS = 40


def bars_picture(ranking: Ranking, subject: str) -> Picture:
    """Return a bar a cell, those of rank 1 marked; the ranking has a goal."""
    import altair as alt

    assert ranking.goal is not None
    metric = ranking.goal.metric
    shown = ranking.order[:_MOST_BARS]
    settings = settings_of(ranking.rows)
    data: list[dict[str, Value]] = []
    for one in shown:
        value = float(one.row[metric])
        found = requests_interval(one.row, metric)
        low, high = (value, value) if found is None else (found.low, found.high)
        if found is not None:
            low, high = (value + low, value + high) if found.is_share else (value * low, value * high)
        group = "best" if one.rank == 1 else OTHER
        ends: dict[str, Value] = {"value": value, "low": low, "high": high, "group": group}
        values = ", ".join(str(one.row[name]) for name in settings)
        data.append({"cell": f"{one.row['cell']}: {values}", **ends})
    names = [str(row["cell"]) for row in data]
    axis = alt.Axis(format="%") if unit_of(metric) == "share" else alt.Axis()
    base = alt.Chart(alt.NamedData("picture")).encode(
        y=alt.Y("cell:N", sort=names, title=None, axis=alt.Axis(labelLimit={"expr": "page_width * 0.4"}))
    )
    bars = base.mark_bar(opacity=0.75).encode(
        x=alt.X("value:Q", title=axis_title(metric).replace("[share]", "[%]"), axis=axis),
        color=alt.Color("group:N", scale=colour_scale(["best", OTHER]), title=None),
        tooltip=["cell:N", "value:Q", "low:Q", "high:Q"],
    )
    rules = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    chart: Any = alt.layer(bars, rules).properties(width=560, height=22 * len(data))
    named = ", ".join(name.removeprefix("set.") for name in settings)
    few = "" if len(shown) == len(ranking.order) else f" The first {len(shown)} of {len(ranking.order):,}."
    definition = (
        f"Each cell with its {named}, best first; bars have intervals of 95 % where there are any, and cells "
        f"equal to the best have its color.{few}"
    )
    table = number_table(ranking, [one.row for one in shown])
    return Picture("bars", f"Each cell's {axis_title(metric)}", definition, data, chart, table, subject)
