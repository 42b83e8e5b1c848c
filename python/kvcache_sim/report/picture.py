"""A picture: a declarative chart, the definition printed under it, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: A cell of a table: a number, text, or None.
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
    #: Definition of each number drawn, in a sentence or two.
    definition: str
    #: Rows of the chart's data, all with the same keys.
    data: list[dict[str, Value]]
    #: An Altair chart without data.
    chart: Any
    #: The same in numbers: the text alternative.
    table: Table
    #: The file or sweep that was drawn, where the rows do not name runs.
    subject: str = ""


@dataclass(frozen=True, slots=True)
class NothingToDraw:
    """A picture that is missing, with the reason in a sentence."""

    kind: str
    title: str
    reason: str


def side_by_side(chart: Any, labels: Sequence[str], width: int = 640, height: int = 240) -> Any:
    """Return a chart for one run, or the same chart a run in columns with common scales (field ``run``)."""
    import altair as alt

    if len(labels) == 1:
        return chart.properties(width=width, height=height)
    each = chart.properties(width=max(160, width // len(labels)), height=height)
    column = alt.Column("run:N", sort=list(labels), title=None)
    return each.facet(column=column, spacing=12, data=alt.NamedData("picture"))
