"""The table of policies in the documentation, written from ``policies/table.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from kvcache_sim.base.output import write_new
from kvcache_sim.policies.table import POLICIES, PolicyRow

_BEGIN = "<!-- policies: written by python -m kvcache_sim.policies.page -->\n"
_END = "<!-- end of policies -->\n"


def policies_markdown() -> str:
    """Return the table in Markdown, one row per policy."""
    head = "| name | chooses by | what it does | from |\n|---|---|---|---|\n"
    return head + "".join(_line(row) for row in POLICIES)


def _line(row: PolicyRow) -> str:
    setting = f" (`{row.setting.form}`)" if row.setting else ""
    return f"| `{row.name}` | {row.kind} | {row.description}{setting} | {row.paper} |\n"


def with_policies(page: str) -> str:
    """Return a page with the table between its two markers; raises ValueError if a marker is missing."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {_BEGIN.strip()} … {_END.strip()}")
    return before + begin + policies_markdown() + end + after


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_new(path, with_policies(path.read_text()).encode(), overwrite=True)
