"""The report: one HTML file with everything inside, the same bytes for the same runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value

#: Nothing may be fetched and nothing sent: a browser enforces what the file promises. Vega compiles its
#: expressions to functions, hence unsafe-eval.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
)


class TextSection(NamedTuple):
    """A section of plain text, shown as it is."""

    title: str
    text: str


class Section(NamedTuple):
    """A section with a table alone."""

    title: str
    definition: str
    table: Table


Part = Section | TextSection | Picture | NothingToDraw


def safe_json(value: object) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def build_page(title: str, warnings: Sequence[str], parts: Sequence[Part]) -> str:
    """Return the whole page; every text from outside is escaped."""
    from kvcache_sim.report.render import vega, vega_script

    specifications: dict[str, Any] = {}
    bodies = []
    for number, part in enumerate(parts):
        anchor = f"s{number}"
        if isinstance(part, Picture):
            specifications[part.kind] = vega(part)
        bodies.append(f'<section id="{anchor}">{_heading(part.title, anchor)}{_body(part, anchor)}</section>')
    links = " ".join(f'<a href="#s{n}">{escape(part.title)}</a>' for n, part in enumerate(parts))
    notes = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    assets = files("kvcache_sim.report").joinpath("assets")
    style, script = (assets.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    runtime = vega_script().replace("</script", "<\\/script") if specifications else ""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            f"<header><h1>{escape(title)}</h1></header><nav>{links}</nav>",
            f'<ul class="warnings">{notes}</ul>' if notes else "",
            *bodies,
            f'<script type="application/json" id="specifications">{safe_json(specifications)}</script>',
            f"<script>{runtime}</script><script>{script}</script></body></html>\n",
        ]
    )


def _heading(title: str, anchor: str) -> str:
    return f'<h2><a href="#{anchor}">{escape(title)}</a></h2>'


def _body(part: Part, anchor: str) -> str:
    match part:
        case Picture():
            label = escape(f"{part.title}. {part.definition} The table below says the same in numbers.")
            chart = f'<div class="chart" data-chart="{escape(part.kind)}"></div>'
            chart = f'<figure aria-label="{label}">{chart}</figure>'
            table = f"<details><summary>in numbers</summary>{_table(part.table, anchor)}</details>"
            return f'<p class="definition">{escape(part.definition)}</p>{chart}{table}'
        case NothingToDraw():
            return f'<p class="reason">Not drawn: {escape(part.reason)}.</p>'
        case Section():
            return f'<p class="definition">{escape(part.definition)}</p>{_table(part.table, anchor)}'
        case TextSection():
            return f"<details><summary>show</summary><pre>{escape(part.text)}</pre></details>"


def _table(table: Table, anchor: str) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.headings)
    rows = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in table.rows)
    button = f'<button class="copy" data-table="{anchor}-table">copy as CSV</button>'
    return (
        f'<div class="scroll"><table id="{anchor}-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{button}"
    )


def _cell(value: Value) -> str:
    if value is None:
        return '<td data-value="">–</td>'
    if isinstance(value, str):
        return f'<td class="text">{escape(value)}</td>'
    return f'<td data-value="{value!r}">{value:,}</td>'
