"""HTML for notebooks: small tables in the page's own colors."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kvcache_sim.report.picture import Table, Value


def html_page(title: str, *parts: str) -> str:
    """Return a heading with parts of HTML under it."""
    return f"<div><strong>{escape(title)}</strong>{''.join(parts)}</div>"


def html_table(table: Table) -> str:
    """Return a table; every text is escaped."""
    head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in table.headings)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def html_line(text: str) -> str:
    """Return one line of text."""
    return f"<div>{escape(text)}</div>"


def html_list(lines: Sequence[str]) -> str:
    """Return sentences one under another, nothing where there are none."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return f'<td style="text-align:left">{escape(value)}</td>'
    shown = "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return f'<td style="text-align:right">{shown}</td>'
