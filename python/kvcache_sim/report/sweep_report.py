"""The results of a sweep as a page and as lines: the table, the verdict, the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.base.output import write_new
from kvcache_sim.metrics.objectives import Objective, losses, pareto_front
from kvcache_sim.report.best_cell import (
    WORDS,
    against_text,
    axis_title,
    figure_text,
    number_table,
    ranked_table,
    requests_text,
    settings_of,
    shown,
)
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.parallel import parallel_picture
from kvcache_sim.report.picture import Picture, Table, Value
from kvcache_sim.report.plain_table import plain_sentences, plain_table
from kvcache_sim.report.ranking import Ranking, rank_cells
from kvcache_sim.report.ranking_text import verdict
from kvcache_sim.report.sweep_bars import bars_picture

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


def write_sweep_report(
    path: Path, name: str, rows: Sequence[Row], goals: Sequence[Objective] = (), force: bool = True
) -> None:
    """Write the page of a sweep; raises OutputExistsError for an earlier page unless ``force``."""
    from kvcache_sim.report.page import build_page
    from kvcache_sim.report.parts import Part, Section
    from kvcache_sim.report.plotting import require_plotting

    require_plotting()
    ranking = rank_cells(rows, goals)
    done = ranking.rows
    failed = [row for row in rows if row["status"] != "ok"]
    counts = f"{len(rows) - len(failed):,} cells finished, {len(failed):,} failed"
    parts: list[Part] = [bars_picture(ranking, name)] if ranking.order else []
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
    page = build_page(f"kvsim sweep: {name}", (), parts, _opening(ranking, counts))
    write_new(path, page.encode(), force)


def _opening(ranking: Ranking, counts: str) -> str:
    """Return the verdict, cards of the best cell, its figure and its settings, and the other sentences."""
    from kvcache_sim.report.headline import Headline
    from kvcache_sim.report.parts import definition_html, verdict_html
    from kvcache_sim.report.run_report import card_html

    said = [f"{line[0].upper()}{line[1:]}." for line in verdict(ranking)]
    cards = ""
    if ranking.goal is not None:
        best, goal = ranking.order[0].row, ranking.goal.metric
        following = [f"next: {one.row['cell']}, {against_text(one.against)}" for one in ranking.order[1:2]]
        rows = [("best cell", str(best["cell"]), *(following or [""]))]
        rows.append(
            (WORDS.get(goal, goal), figure_text(goal, best[goal]), requests_text(best, goal).strip(" ()"))
        )
        rows += [(name.removeprefix("set."), str(best[name]), "") for name in settings_of([best])]
        shown = (Headline(words, words, "", (value,), (note,), (None,)) for words, value, note in rows)
        cards = f'<div class="cards">{"".join(card_html(card, several=False) for card in shown)}</div>'
    return verdict_html(said[:1]) + cards + definition_html(" ".join([*said[1:], f"{counts}."]))


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
