"""Tables of ``docs/data``: one TOML file per table, and ``pages.toml``, which assigns them to pages.

A file has ``title``, ``source``, ``columns`` (with their units), ``rows`` of cells, and, where they help,
``about`` (a paragraph), ``notes`` and ``test`` (the file of ``tests/`` that computes or reads its rows).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).resolve().parents[1] / "data"
_INDEX = "pages.toml"


class Table(NamedTuple):
    """A table and its description; cells are Markdown, the first of a row names it."""

    title: str
    source: str
    columns: list[str]
    rows: list[list[str]]
    about: str = ""
    notes: tuple[str, ...] = ()
    test: str = ""


class Page(NamedTuple):
    """A page of tables: its path in the site and its tables, in order."""

    path: str
    title: str
    intro: str
    tables: tuple[str, ...]


def read_table(name: str) -> Table:
    """Return the table ``name`` of ``docs/data``; raises SystemExit at a row of another length."""
    given: dict[str, Any] = tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
    table = Table(**{**given, "notes": tuple(given.get("notes", ()))})
    for row in table.rows:
        if len(row) != len(table.columns):
            raise SystemExit(
                f"docs/data/{name}.toml: {row[0]}: {len(row)} cells; expected {len(table.columns)}"
            )
    return table


def read_pages() -> Iterator[Page]:
    """Yield the pages that are made of tables."""
    given = tomllib.loads((DATA / _INDEX).read_text(encoding="utf-8"))
    for path, page in given.items():
        yield Page(path, page["title"], page["intro"], tuple(page["tables"]))


def table_names() -> set[str]:
    """Return the name of every table of ``docs/data``."""
    return {path.stem for path in DATA.glob("*.toml")} - {Path(_INDEX).stem}


def rows_text(table: Table) -> str:
    """Return a table's rows in Markdown."""
    lines = [f"| {' | '.join(table.columns)} |", "|---" * len(table.columns) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table.rows), ""])


def section(name: str) -> str:
    """Return the section of a table: what it is, its rows, its notes, where it is from."""
    table = read_table(name)
    parts = [f"## {table.title} {{#{name}}}\n", f"{table.about.strip()}\n" if table.about else ""]
    parts += [rows_text(table), "".join(f"- {_one_line(note)}\n" for note in table.notes)]
    read_by = f" Test: `tests/{table.test}`." if table.test else ""
    parts += [f"*Source: {_one_line(table.source)}.{read_by} Data: `docs/data/{name}.toml`.*\n"]
    return "\n".join(part for part in parts if part)


def page_text(page: Page) -> str:
    """Return a page in Markdown, with a list of its tables."""
    contents = "".join(f"- [{read_table(name).title}](#{name})\n" for name in page.tables)
    return "\n".join([f"# {page.title}\n", f"{page.intro.strip()}\n", contents, *map(section, page.tables)])


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
