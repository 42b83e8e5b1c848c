"""Tables as text, for a terminal."""

from __future__ import annotations

from kvcache_sim.report.picture import Table


def plain_table(table: Table) -> str:
    """Return a table as text with aligned columns."""
    cells = [[str(heading) for heading in table.headings]]
    cells += [["–" if value is None else str(value) for value in row] for row in table.rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.headings))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    )
