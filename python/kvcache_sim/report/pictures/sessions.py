"""The cached share of a session's prefix at its next turn, by tier."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side

_TITLE = "Survival of sessions"
_DEFINITION = (
    "The mean share of a turn's whole blocks found in each tier, and the share lost; by the gap from the "
    "turn's last token to the session's next arrival."
)
_PARTS = (*KV_SOURCES, "lost")


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return stacked bars over the gap, from the summary's ``session_survival``."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    gaps: dict[str, None] = {}
    for run in runs:
        for row in run.summary.get("session_survival") or ():
            upper = row["gap_to_s"]
            gap = (
                f"{row['gap_from_s']:g}–{upper:g} s" if upper is not None else f"over {row['gap_from_s']:g} s"
            )
            gaps[gap] = None
            shares = [round(float(row[part] or 0.0), 5) for part in _PARTS]
            data += [
                {"run": run.label, "gap": gap, "part": part, "order": order, "share": share}
                for order, (part, share) in enumerate(zip(_PARTS, shares, strict=True))
            ]
            table.append((run.label, gap, row["turns"], *shares))
    if not data:
        return NothingToDraw(
            "sessions", _TITLE, "no session came back: the requests have none, or one turn each"
        )
    drawn = [part for part in _PARTS if any(row["part"] == part and row["share"] for row in data)]
    data = [row for row in data if row["part"] in drawn]
    chart = (
        alt.Chart()
        .mark_bar()
        .encode(
            x=alt.X(
                "gap:O", sort=list(gaps), title="gap before the next turn", axis=alt.Axis(labelAngle=-30)
            ),
            y=alt.Y(
                "share:Q",
                stack="zero",
                title="share of the prefix",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.Color("part:N", scale=colour_scale(drawn), sort=drawn, title=None),
            order=alt.Order("order:Q"),
            tooltip=["run:N", "gap:O", "part:N", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    shown = [run.label for run in runs if any(row["run"] == run.label for row in data)]
    headings = ("run", "gap", "turns", *_PARTS)
    return Picture(
        "sessions", _TITLE, _DEFINITION, data, side_by_side(chart, shown), Table(headings, tuple(table))
    )
