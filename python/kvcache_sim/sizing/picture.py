"""Cost against the rate that is held, a point a candidate, the frontier as a line."""

from __future__ import annotations

from typing import Any

from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.picture import NothingToDraw, Picture, Value
from kvcache_sim.sizing.answer import Answer, settings_text
from kvcache_sim.sizing.text import candidate_table

_KIND, _TITLE = "capacity", "Cost against capacity"
_DEFINITION = (
    "Each point is a candidate: the highest rate of requests at which enough of them are within their "
    "limits, and what it costs an hour. The line is the frontier: no other candidate holds as much for less. "
    "Candidates that hold no rate are not drawn."
)


def draw(answer: Answer, subject: str = "") -> Picture | NothingToDraw:
    """Return the picture of the candidates that hold some rate; ``subject`` says whose load it is."""
    import altair as alt

    if not answer.holding:
        return NothingToDraw(_KIND, _TITLE, "no candidate holds any rate that was tried")
    front = {row["cell"] for row in answer.frontier}
    data: list[dict[str, Value]] = [
        {
            "cell": str(row["cell"]),
            "settings": settings_text(row),
            "rate": round(answer.rate(row), 6),
            "cost": round(answer.price(row), 6),
            "front": "front" if row["cell"] in front else "none",
        }
        for row in answer.holding
    ]
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X("cost:Q", title="cost an hour" if answer.is_priced else "machines"),
        y=alt.Y("rate:Q", title="requests a second that are held"),
        tooltip=["cell:N", "settings:N", "rate:Q", "cost:Q"],
    )
    colour = alt.Color("front:N", scale=colour_scale(["front", "none"]), legend=None)
    line = base.transform_filter("datum.front == 'front'").mark_line(interpolate="step-after", opacity=0.5)
    points = base.mark_point(filled=True, size=70, opacity=1).encode(color=colour)
    chart: Any = alt.layer(line, points).properties(width=640, height=320)
    return Picture(_KIND, _TITLE, _DEFINITION, data, chart, candidate_table(answer), subject)
