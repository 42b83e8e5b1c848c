"""All cells of a sweep in parallel coordinates: an axis for each setting and figure, with units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.metrics.objectives import Objective, losses, pareto_front
from kvcache_sim.report.best_cell import axis_title, figure_text, figures_of, number_table, settings_of
from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.picture import Picture, Value
from kvcache_sim.report.ranking import Ranking

Row = Mapping[str, Any]
_DEFINITION = (
    "One line a cell. Each axis runs from its least value at the bottom to its greatest at the top; text is "
    "in the order of the sweep."
)


def parallel_picture(ranking: Ranking, goals: Sequence[Objective], subject: str) -> Picture:
    """Return parallel coordinates of all cells; those of rank 1, or on the front of the goals, are marked."""
    import altair as alt

    rows = ranking.rows
    if goals:
        marked, chosen = "on the front", [rows[n] for n in pareto_front([losses(row, goals) for row in rows])]
    else:
        marked, chosen = "best", list(ranking.first)
    axes = [*settings_of(rows), *figures_of(rows, goals)]
    titles = [axis_title(axis.removeprefix("set.")).replace("[share]", "[%]") for axis in axes]
    data: list[dict[str, Value]] = []
    for axis, title in zip(axes, titles, strict=True):
        values = [row.get(axis) for row in rows]
        ends = _ends(axis, values)
        # a difference that no text shows is drawn as none
        is_flat = len({_text(axis, value) for value in values if value is not None}) <= 1
        positions = [None if v is None else 0.0 for v in values] if is_flat else _positions(values)
        for row, position in zip(rows, positions, strict=True):
            if position is not None:
                data.append(
                    {
                        "cell": str(row["cell"]),
                        "axis": title,
                        "position": position,
                        "value": _text(axis, row.get(axis)),
                        "least": ends[0],
                        "most": ends[1],
                        "group": marked if any(row is one for one in chosen) else OTHER,
                    }
                )
                ends = "", ""  # written once on each axis
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X(
            "axis:N", sort=titles, title=None, axis=alt.Axis(labelAngle=-90, labelLimit=200, labelPadding=20)
        )
    )
    lines = base.mark_line(opacity=0.6).encode(
        y=alt.Y("position:Q", axis=None),
        detail="cell:N",
        color=alt.Color("group:N", scale=colour_scale([marked, OTHER]), title=None),
        tooltip=["cell:N", "axis:N", "value:N"],
    )
    texts = [
        base.mark_text(dy=dy, fontSize=9, limit=80).encode(y=alt.datum(at), text=f"{name}:N")
        for name, at, dy in (("least", 0, 10), ("most", 1, -8))
    ]
    chart: Any = alt.layer(lines, *texts).properties(width=720, height=300)
    table = number_table(ranking, None, goals)
    return Picture("parallel", "All cells", _DEFINITION, data, chart, table, subject)


def _text(axis: str, value: object) -> str:
    return figure_text(axis, value) if isinstance(value, (int, float)) and "set." not in axis else str(value)


def _ends(axis: str, values: Sequence[object]) -> tuple[str, str]:
    """Return the texts at the ends of an axis; of one value the least alone."""
    known = [value for value in values if value is not None]
    if not known:
        return "", ""
    if all(isinstance(value, (int, float)) for value in known):
        low, high = min(known, key=lambda v: float(str(v))), max(known, key=lambda v: float(str(v)))
    else:
        low, high = known[0], list(dict.fromkeys(map(str, known)))[-1]
    least, most = _text(axis, low), _text(axis, high)
    return least, most if least != most else ""


def _positions(values: Sequence[object]) -> list[float | None]:
    if all(isinstance(value, (int, float)) for value in values if value is not None):
        numbers = [None if value is None else float(str(value)) for value in values]
    else:
        order = {
            text: float(n) for n, text in enumerate(dict.fromkeys(str(v) for v in values if v is not None))
        }
        numbers = [None if value is None else order[str(value)] for value in values]
    present = [number for number in numbers if number is not None]
    low, span = min(present, default=0.0), (max(present, default=0.0) - min(present, default=0.0)) or 1.0
    return [None if number is None else round((number - low) / span, 5) for number in numbers]
