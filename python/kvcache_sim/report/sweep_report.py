"""The results of a sweep as a page and as lines: the table, the verdict, the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.base.output import write_new
from kvcache_sim.metrics.objectives import Objective, losses, pareto_front
from kvcache_sim.report.best_cell import axis_title, number_table, ranked_table, shown
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.parallel import parallel_picture
from kvcache_sim.report.picture import Picture, Table, Value
from kvcache_sim.report.plain_table import plain_sentences, plain_table
from kvcache_sim.report.ranking import Ranking, rank_cells
from kvcache_sim.report.ranking_text import verdict

Row = Mapping[str, object]


def rows_text(ranking: Ranking, goals: Sequence[Objective] = ()) -> str:
    """Return the cells as a table for a terminal, of goals those on the Pareto front, and the verdict."""
    rows = ranking.rows
    title, chosen = "", None
    if goals:
        chosen = [rows[index] for index in pareto_front([losses(row, goals) for row in rows])]
        chosen.sort(key=lambda row: losses(row, goals) or ())
        names = " and ".join(goal.metric for goal in goals)
        title = f"Pareto front ({names}): {len(chosen):,} of {len(rows):,} rows\n"
    said = verdict(ranking)
    last = "\n" + plain_sentences([f"* {said[0]}" if ranking.order else said[0], *said[1:]]) if said else ""
    return title + plain_table(ranked_table(ranking, chosen, goals)) + last


def write_sweep_report(path: Path, name: str, rows: Sequence[Row], goals: Sequence[Objective]) -> None:
    """Write the page of a sweep; an earlier page of the same name is replaced."""
    from kvcache_sim.report.page import build_page
    from kvcache_sim.report.parts import Part, Section, Sentences
    from kvcache_sim.report.plotting import require_plotting

    require_plotting()
    ranking = rank_cells(rows, goals)
    done = ranking.rows
    failed = [row for row in rows if row["status"] != "ok"]
    counts = f"{len(rows) - len(failed):,} cells finished, {len(failed):,} failed"
    said = verdict(ranking)
    said = (
        [
            f"{'The best: ' if ranking.order else ''}{said[0]}.",
            *(f"{line[0].upper()}{line[1:]}." for line in said[1:]),
        ]
        if said
        else []
    )
    parts: list[Part] = [Sentences("Which cell is best?", {name: {counts: tuple(said)}})] if said else []
    if done and len(goals) >= 2:
        parts.append(_front_picture(ranking, goals, name))
    if done:
        parts.append(parallel_picture(ranking, goals, name))
    parts.append(
        Section(
            "Rows", "Every finished cell with its settings and numbers.", ranked_table(ranking, None, goals)
        )
    )
    if failed:
        rows_of = tuple((shown(r["cell"]), shown(r["status"]), shown(r["error"])) for r in failed)
        parts.append(
            Section("Failed", "Cells without a result.", Table(("cell", "status", "error"), rows_of))
        )
    page = build_page(f"kvsim sweep: {name}", (), parts)
    write_new(path, page.encode(), overwrite=True)


def _front_picture(ranking: Ranking, goals: Sequence[Objective], subject: str) -> Picture:
    """Return two goals against each other, dominated cells in grey."""
    import altair as alt

    x, y, rows = goals[0].metric, goals[1].metric, ranking.rows
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
            x=alt.X("x:Q", title=axis_title(x), scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title=axis_title(y), scale=alt.Scale(zero=False)),
            color=alt.Color("front:N", scale=colour_scale(["front", "none"]), legend=None),
            tooltip=["cell:N", "x:Q", "y:Q"],
        )
    )
    chosen = [rows[index] for index in front]
    definition = "Cells that no other one beats in all goals; dominated ones in grey."
    return Picture(
        "pareto", "Pareto front", definition, data, chart, number_table(ranking, chosen, goals), subject
    )
