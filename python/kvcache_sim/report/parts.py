"""The parts of a page, and each part as HTML: every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value


class TextSection(NamedTuple):
    """A section of plain text behind a disclosure, shown as it is."""

    title: str
    text: str


class Section(NamedTuple):
    """A section with a table alone."""

    title: str
    definition: str
    table: Table


class Disclosure(NamedTuple):
    """A table behind a disclosure: its last column explains the row, and goes under it on a narrow page."""

    title: str
    summary: str
    table: Table


class Sentences(NamedTuple):
    """Sentences by topic, a column a run: label → topic → sentences."""

    title: str
    sides: Mapping[str, Mapping[str, tuple[str, ...]]]


class Asked(NamedTuple):
    """A picture under the question that it answers."""

    question: str
    picture: Picture | NothingToDraw


Part = Section | TextSection | Disclosure | Sentences | Asked | Picture | NothingToDraw


def heading(part: Part) -> str:
    """Return the words over a part."""
    return part.question if isinstance(part, Asked) else part.title


def body(part: Part, anchor: str) -> str:
    """Return the HTML under a part's heading."""
    match part:
        case Asked():
            return body(part.picture, anchor)
        case Picture():
            label = escape(f"{part.title}. {part.definition} The table below says the same in numbers.")
            chart = f'<div class="chart" data-chart="{escape(part.kind)}"></div>'
            chart = f'<figure aria-label="{label}">{chart}</figure>'
            table = f"<details><summary>in numbers</summary>{table_html(part.table, anchor)}</details>"
            return f"{chart}{definition_html(part.definition)}{table}"
        case NothingToDraw():
            return f'<p class="reason">{escape(part.title)}: not drawn, {escape(part.reason)}.</p>'
        case Section():
            return definition_html(part.definition) + table_html(part.table, anchor)
        case Disclosure():
            table = table_html(part.table, anchor, "explained")
            return f"<details><summary>{escape(part.summary)}</summary>{table}</details>"
        case Sentences():
            return f'<div class="sides">{"".join(_side(*side) for side in part.sides.items())}</div>'
        case TextSection():
            return f"<details><summary>show</summary><pre>{escape(part.text)}</pre></details>"


def definition_html(text: str) -> str:
    """Return a definition, in grey; "" without any."""
    return f'<p class="definition">{escape(text)}</p>' if text else ""


def verdict_html(answers: Sequence[str]) -> str:
    """Return the answers of a page, its headline; "" without any."""
    return "".join(f'<p class="verdict">{escape(answer)}</p>' for answer in answers)


def _side(label: str, topics: Mapping[str, tuple[str, ...]]) -> str:
    groups = "".join(
        f"<h4>{escape(topic)}</h4><ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
        for topic, texts in topics.items()
    )
    return f"<div><h3>{escape(label)}</h3>{groups}</div>"


def table_html(table: Table, anchor: str, kind: str = "") -> str:
    """Return a table that sorts by its headings, with a button that copies it."""
    head = "".join(
        f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in table.headings
    )
    rows = "".join(
        f"<tr>{''.join(_cell(value, name) for value, name in zip(row, table.headings, strict=True))}</tr>"
        for row in table.rows
    )
    button = f'<button type="button" class="copy" data-table="{anchor}-table">copy as CSV</button>'
    name = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" tabindex="0"><table{name} id="{anchor}-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{button}"
    )


def _cell(value: Value, column: str) -> str:
    of = f'data-column="{escape(column)}"'
    if value is None:
        return f'<td {of} data-value="">–</td>'
    if isinstance(value, str):
        return f'<td {of} class="text">{escape(value)}</td>'
    return f'<td {of} data-value="{value!r}">{value:,}</td>'
