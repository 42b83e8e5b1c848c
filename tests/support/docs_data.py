"""The tables of ``docs/data``, from which the site makes its appendix of measured errors."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "site"))
from data_tables import Table, read_pages, read_table, rows_text, section, table_names

from support.shared_files import ROOT

__all__ = [
    "Table",
    "cells",
    "figures",
    "figures_of",
    "on_pages",
    "read_pages",
    "read_table",
    "rows_text",
    "section",
    "table_names",
]


def cells(table: str, first: str) -> list[str]:
    """Return the cells of the row of a table that begins with ``first``, plain."""
    rows = [row for row in read_table(table).rows if row[0] == first]
    assert len(rows) == 1, (table, first, rows)
    return [cell.replace("*", "").strip() for cell in rows[0][1:]]


def figures_of(cell: str) -> list[float]:
    """Return a cell's figures, signed (U+2212): ``3.20 / −7.4`` as two."""
    return [float(figure.replace("−", "-")) for figure in re.findall(r"−?\d+(?:\.\d+)?", cell)]


def on_pages() -> list[tuple[str, str]]:
    """Return the pages that show a table below ``<!-- data: NAME -->``, each with the name."""
    pages = sorted(ROOT.glob("docs/**/*.md"))
    shown = [(page, re.findall(r"<!-- data: ([\w-]+) -->", page.read_text())) for page in pages]
    return [(str(page.relative_to(ROOT)), name) for page, names in shown for name in names]


def figures(table: str, first: str) -> list[list[float]]:
    """Return the figures of each cell of a row."""
    return [figures_of(cell) for cell in cells(table, first)]
