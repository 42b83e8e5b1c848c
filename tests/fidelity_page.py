"""The figures that the pages on fidelity state of what a test computes anew."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).resolve().parents[1] / "docs"


def cells(page: str, heading: str, first: str) -> list[str]:
    """Return the cells of the row that begins with ``first`` in the section under ``heading``, plain."""
    section = re.split(r"^(?:## |\*\*)" + re.escape(heading), (_DOCS / page).read_text(), flags=re.M)[1]
    section = re.split(r"^## ", section, flags=re.M)[0]
    rows = re.findall(r"^\| " + re.escape(first) + r" \|(.*)\|$", section, re.M)
    assert len(rows) == 1, (first, rows)
    return [cell.replace("*", "").strip() for cell in rows[0].split("|")]


def figures(page: str, heading: str, first: str) -> list[list[float]]:
    """Return the same with each cell's figures apart and signed (U+2212): ``3.20 / −7.4`` as two."""
    found = [re.findall(r"−?\d+(?:\.\d+)?", cell) for cell in cells(page, heading, first)]
    return [[float(figure.replace("−", "-")) for figure in row] for row in found]


def topologies_left_out() -> dict[str, float]:
    """Return the decode error that the page states for each topology left out."""
    text = (_DOCS / "fidelity.md").read_text()
    text = text[text.index("**A topology left out.**") :].split("median")[0]
    text = re.sub(r"\([^)]*\)", "", text[text.index("other nine:") :])
    return {name: float(error) for name, error in re.findall(r"(tp\d[\w-]*) (\d+\.\d)", text)}
