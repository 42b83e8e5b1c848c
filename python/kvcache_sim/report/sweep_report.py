"""The results of a sweep as a page and as lines: parallel coordinates and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.metrics.objectives import Objective, losses, pareto_front
from kvcache_sim.output import write_new
from kvcache_sim.report.best_cell import best_by_default, cell_table, figures_of, settings_of, shown
from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.picture import Picture, Table, Value
from kvcache_sim.report.plain_table import plain_sentences, plain_table

Row = Mapping[str, object]


def rows_text(rows: Sequence[Row], goals: Sequence[Objective]) -> str:
    """Return the rows as a table for a terminal: those on the Pareto front where there are goals."""
    done = [row for row in rows if row["status"] == "ok"]
    found = best_by_default(done, goals)
    best = found[0] if found is not None else None
    last = "\n" + plain_sentences([f"* {_praise(*found)}"]) if found is not None else ""
    if not goals:
        return plain_table(cell_table(done, goals, best)) + last
    front = [rows[index] for index in pareto_front([losses(row, goals) for row in rows])]
    front.sort(key=lambda row: losses(row, goals) or ())
    title = (
        f"Pareto front ({' and '.join(goal.metric for goal in goals)}): {len(front):,} of {len(rows):,} rows"
    )
    return f"{title}\n{plain_table(cell_table(front, goals, best))}{last}"


def _praise(row: Row, goal: Objective) -> str:
    settings = ", ".join(f"{name.removeprefix('set.')}={row[name]}" for name in settings_of([row]))
    extreme = "lowest" if goal.smaller_is_better else "highest"
    return f"cell {row['cell']} has the {extreme} {goal.metric}, {shown(row[goal.metric])}: {settings}"


def write_sweep_report(path: Path, name: str, rows: Sequence[Row], goals: Sequence[Objective]) -> None:
    """Write the page of a sweep; an earlier page of the same name is replaced."""
    from kvcache_sim.report.page import build_page
    from kvcache_sim.report.parts import Part, Section, Sentences
    from kvcache_sim.report.plotting import require_plotting

    require_plotting()
    done = [row for row in rows if row["status"] == "ok"]
    failed = [row for row in rows if row["status"] != "ok"]
    found = best_by_default(done, goals)
    best = found[0] if found is not None else None
    counts = f"{len(done):,} cells finished, {len(failed):,} failed"
    said = (
        (f"The best: {_praise(*found)}.",)
        if found is not None
        else ("No cell is better than another.",)
        if done
        else ()
    )
    parts: list[Part] = [Sentences("Which cell is best?", {name: {counts: said}})] if said else []
    if done and len(goals) >= 2:
        parts.append(_front_picture(done, goals, name))
    if done:
        parts.append(_parallel(done, goals, name))
    parts.append(
        Section("Rows", "Every finished cell with its settings and numbers.", cell_table(done, goals, best))
    )
    if failed:
        rows_of = tuple((shown(r["cell"]), shown(r["status"]), shown(r["error"])) for r in failed)
        parts.append(
            Section("Failed", "Cells without a result.", Table(("cell", "status", "error"), rows_of))
        )
    page = build_page(f"kvsim sweep: {name}", (), parts)
    write_new(path, page.encode(), overwrite=True)


def _parallel(rows: Sequence[Row], goals: Sequence[Objective], subject: str) -> Picture:
    """Return parallel coordinates: an axis a setting and a figure, each from its least to its most."""
    import altair as alt

    axes = [*settings_of(rows), *figures_of(rows, goals)]
    found = best_by_default(rows, goals)
    marked = "on the front" if goals else "best"
    best = [index for index, row in enumerate(rows) if found is not None and row is found[0]]
    chosen = set(pareto_front([losses(row, goals) for row in rows]) if goals else best)
    data: list[dict[str, Value]] = []
    for axis in axes:
        positions = _positions([row.get(axis) for row in rows])
        for index, (row, position) in enumerate(zip(rows, positions, strict=True)):
            if position is not None:
                data.append(
                    {
                        "cell": str(row["cell"]),
                        "axis": axis.removeprefix("set."),
                        "position": position,
                        "value": str(row.get(axis)),
                        "group": marked if index in chosen else OTHER,
                    }
                )
    names = [axis.removeprefix("set.") for axis in axes]
    chart: Any = (
        alt.Chart(width=720, height=300)
        .mark_line(opacity=0.6)
        .encode(
            x=alt.X("axis:N", sort=names, title=None, axis=alt.Axis(labelAngle=-90, labelLimit=200)),
            y=alt.Y("position:Q", title="least to most", axis=None),
            detail="cell:N",
            color=alt.Color("group:N", scale=colour_scale([marked, OTHER]), title=None),
            tooltip=["cell:N", "axis:N", "value:N"],
        )
    )
    definition = (
        "One line a cell; each axis runs from its least to its greatest value, text in its own order."
    )
    return Picture("parallel", "All cells", definition, data, chart, cell_table(rows, goals), subject)


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


def _front_picture(rows: Sequence[Row], goals: Sequence[Objective], subject: str) -> Picture:
    """Return two goals against each other, dominated cells in grey."""
    import altair as alt

    x, y = goals[0].metric, goals[1].metric
    front = pareto_front([losses(row, goals) for row in rows])
    data: list[dict[str, Value]] = [
        {
            "cell": str(row["cell"]),
            "x": float(str(row[x])),
            "y": float(str(row[y])),
            "front": "front" if index in front else "none",
        }
        for index, row in enumerate(rows)
        if isinstance(row.get(x), (int, float)) and isinstance(row.get(y), (int, float))
    ]
    chart: Any = (
        alt.Chart(width=560, height=320)
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("x:Q", title=x, scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title=y, scale=alt.Scale(zero=False)),
            color=alt.Color("front:N", scale=colour_scale(["front", "none"]), legend=None),
            tooltip=["cell:N", "x:Q", "y:Q"],
        )
    )
    chosen = [rows[index] for index in front]
    definition = "Cells that no other one beats in all goals; dominated ones in grey."
    return Picture("pareto", "Pareto front", definition, data, chart, cell_table(chosen, goals), subject)
