"""A picture: a declarative chart, the definition printed under it, and the table that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvcache_sim.tier_table import ROWS
from kvcache_sim.tiers import PLACES, REMOTE

#: A cell of a table: what is not a number is shown as text.
Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people: headings with units, and rows."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of one or several runs."""

    kind: str
    title: str
    #: What is drawn, in a sentence or two: each number's definition.
    definition: str
    #: Rows of the chart's data, all with the same keys.
    data: list[dict[str, Value]]
    #: An Altair chart without data.
    chart: Any
    #: The same in numbers: the text alternative.
    table: Table


@dataclass(frozen=True, slots=True)
class NothingToDraw:
    """Why a picture is missing: in a sentence, so that an empty place is never a riddle."""

    kind: str
    title: str
    reason: str


_PLACES = {row.name: row.colour for row in ROWS} | {PLACES[REMOTE]: "#a05fb4"}
#: Colours that tell apart for colour-blind readers on light and on dark ground, by what they stand for.
COLOURS: dict[str, str] = {
    **_PLACES,
    "none": "#8a8a8a",
    "full hit": "#1f9e89",
    "partial hit": "#d9a200",
    "miss": "#d1495b",
    "client": "#c8ccd0",
    "queue": "#8a8a8a",
    "lookup": "#c9c06b",
    "fetch room": "#7a5c3e",
    **{f"fetch {place}": colour for place, colour in _PLACES.items()},
    "prefill": "#d1495b",
    "first decode": "#1f9e89",
    "active": "#d1495b",
    "cached": "#1f9e89",
    "in flight": "#d9a200",
    "free": "#c8ccd0",
    "shorter": "#5b6abf",
    "never seen": "#c8ccd0",
    "diverged": "#a9b0b7",
    "elsewhere": "#7a5c3e",
    "not admitted": "#7f9f3f",
    "not ready": "#d9a200",
    "evicted": "#d1495b",
    "lost": "#d1495b",
}
_SPARE = ("#3b82c4", "#d1495b", "#1f9e89", "#d9a200", "#a05fb4", "#b5651d", "#5b6abf", "#7f9f3f")


def colour_scale(names: Sequence[str]) -> Any:
    """Return an Altair scale that gives each name its own colour, known names always the same one."""
    import altair as alt

    spare = iter(_SPARE * (1 + len(names) // len(_SPARE)))
    return alt.Scale(domain=list(names), range=[COLOURS.get(name) or next(spare) for name in names])


def side_by_side(chart: Any, labels: Sequence[str], width: int = 640, height: int = 240) -> Any:
    """Return a chart for one run, or the same chart a run in columns with common scales (field ``run``)."""
    import altair as alt

    if len(labels) == 1:
        return chart.properties(width=width, height=height)
    each = chart.properties(width=max(160, width // len(labels)), height=height)
    column = alt.Column("run:N", sort=list(labels), title=None)
    return each.facet(column=column, spacing=12, data=alt.NamedData("picture"))
