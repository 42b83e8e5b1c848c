"""Tables as text, for a terminal: no line is longer than the terminal, wrapped between columns."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap

from kvcache_sim.report.picture import Table

_WIDTH = 80
_GAP = "  "


def plain_table(table: Table, width: int | None = None) -> str:
    """Return a table as text with aligned columns, in lines of at most ``width`` (the terminal's, or 80).

    Columns beyond the width follow below, after the first column again; a text that is wider than its column
    continues in the next line of its cell.
    """
    limit = width or terminal_width()
    cells = [[str(heading) for heading in table.headings]]
    cells += [["–" if value is None else str(value) for value in row] for row in table.rows]
    columns = [_fitted(list(column), limit // 2) for column in zip(*cells, strict=True)]
    groups = side_by_side([_width(column) for column in columns], limit)
    return "\n\n".join(_lines([columns[k] for k in group]) for group in groups)


def plain_sentences(sentences: Sequence[str], indent: str = "") -> str:
    """Return sentences below each other, in lines that fit the terminal.

    Further lines of a sentence are indented by two columns.
    """
    limit = terminal_width()
    return "\n".join(
        line
        for sentence in sentences
        for line in wrap(
            sentence, limit, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
        )
    )


def labelled(label: str, text: str, columns: int) -> list[str]:
    """Return a text behind its label of so many columns, in lines that fit the terminal."""
    lines = wrap(text, terminal_width() - columns, break_on_hyphens=False) or [""]
    return [f"{label if not n else '':<{columns}}{line}" for n, line in enumerate(lines)]


def next_line(*words: object) -> str:
    """Return the line that recommends a command of ``kvsim``: quoted for a shell, in lines that fit."""
    return shell_lines("next: ", ["kvsim", *map(str, words)])


def shell_lines(before: str, words: Sequence[str]) -> str:
    """Return words to type behind a few others, in lines that fit the terminal and still are one command.

    A flag and its value stay together; a line that continues ends with a backslash.
    """
    lines = [before.rstrip()]
    free_width = terminal_width() - len(" \\")
    for number, word in enumerate(words):
        quoted = shlex.quote(word)
        takes = f"{quoted} {shlex.quote(words[number + 1])}" if _is_flag(words, number) else quoted
        if len(lines[-1]) + 1 + len(takes) > free_width and number and not _is_flag(words, number - 1):
            lines.append("   ")
        lines[-1] += f" {quoted}"
    return " \\\n".join(lines)


def _is_flag(words: Sequence[str], number: int) -> bool:
    return words[number].startswith("-") and number + 1 < len(words)


def terminal_width() -> int:
    """Return the columns of the terminal that is printed to, 80 at least and where there is none."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return max(_WIDTH, shutil.get_terminal_size().columns) if is_terminal else _WIDTH


Cells = list[list[str]]


def _fitted(column: list[str], most: int) -> Cells:
    """Return each cell as lines of at most ``most`` columns."""
    return [wrap(cell, most, break_on_hyphens=False) or [""] for cell in column]


def _width(column: Cells) -> int:
    return max(len(line) for cell in column for line in cell)


def side_by_side(widths: Sequence[int], limit: int) -> list[list[int]]:
    """Return groups of columns that fit the limit side by side; the first column leads every group."""
    groups: list[list[int]] = [[0]]
    used = first = widths[0]
    for number, width in enumerate(widths[1:], 1):
        needed = len(_GAP) + width
        if used + needed > limit and len(groups[-1]) > 1:
            groups.append([0])
            used = first
        groups[-1].append(number)
        used += needed
    return groups


def _lines(columns: list[Cells]) -> str:
    widths = [_width(column) for column in columns]
    lines = []
    for row in zip(*columns, strict=True):
        for line in range(max(map(len, row))):
            parts = [cell[line] if line < len(cell) else "" for cell in row]
            lines.append(_GAP.join(p.ljust(w) for p, w in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)
