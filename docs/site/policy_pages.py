"""Pages of eviction policies and routers, made from the docstrings of their files.

``python docs/site/policy_pages.py`` writes what ``kvsim policies show`` prints of an eviction policy.
"""

from __future__ import annotations

import re
import textwrap
from inspect import getdoc
from pathlib import Path

from kvcache_sim.policies.definition import RULES
from kvcache_sim.policies.table import EVICTION_POLICIES, POLICIES, PolicyRow
from kvcache_sim.serving.router.registry import ROUTERS

POLICY_FILES = Path(__file__).resolve().parents[2] / "rust" / "core" / "src" / "policies"
#: What each docstring says, in this order; a router's begins with what it does.
PARTS = ("What it does", "Why", "Example", "Source")
_LABEL = re.compile(rf"^({'|'.join(PARTS)}|Cost): ", re.MULTILINE)


def policy_parts(row: PolicyRow) -> dict[str, str]:
    """Return the parts of an eviction policy's file, ``""`` its first line."""
    head = re.match(r"(?://!.*\n)+", (POLICY_FILES / f"{row.module}.rs").read_text(encoding="utf-8"))
    return _parts(re.sub(r"^//! ?", "", head[0] if head else "", flags=re.M), "")


def router_parts(name: str) -> dict[str, str]:
    """Return the parts of a router's class."""
    return _parts((getdoc(ROUTERS[name]) or "").replace("``", "`"), PARTS[0])


def _parts(doc: str, first: str) -> dict[str, str]:
    """Return the text of each label at the beginning of a line; what stands before them is ``first``."""
    before, *labelled = _LABEL.split(doc)
    texts = {first: before, **dict(zip(labelled[::2], labelled[1::2], strict=True))}
    return {label: " ".join(text.split()) for label, text in texts.items()}


def rules_text() -> str:
    """Return the file of rules that the package carries, since it has no Rust files."""
    lines = ["# Written by docs/site/policy_pages.py from rust/core/src/policies/NAME.rs, which decides.", ""]
    for row in EVICTION_POLICIES:
        parts = policy_parts(row)
        paragraphs = [f"{label}: {parts[label]}" for label in PARTS[:3]]
        lines += [f'{row.name} = """', *(textwrap.fill(each, 110) for each in paragraphs), '"""']
    return "\n".join([*lines, ""])


def policies_page() -> str:
    """Return the page of eviction policies, then those of engines and the upper bounds as a table."""
    parts = [
        "# Eviction policies\n",
        "Of the files that decide: each skips a block that a request holds, or that another resident block "
        "follows. Examples are a plain cache of blocks and its accesses in order. Their use: "
        "[hit curve and eviction policies](../how-to/hit-curve-and-policies.md).\n",
    ]
    for row in EVICTION_POLICIES:
        said = policy_parts(row)
        setting = f" Setting: `{row.setting.form}`." if row.setting else ""
        parts += [f"## {row.name}\n", f"{said['']} *{row.kind}*.{setting}\n", _listed(said)]
    parts += ["## Engines' own and upper bounds\n", "| name | chooses by | what it does | from |"]
    return "\n".join([*parts, "|---|---|---|---|", *(_row(row) for row in POLICIES if not row.evicts), ""])


def routers_page() -> str:
    """Return the page of routers."""
    intro = "Of the classes that decide. `router.policy` names one ([routers](../understand/routers.md)).\n"
    parts = [f"## {name}\n\n{_listed(router_parts(name))}" for name in ROUTERS]
    return "\n".join(["# Rules of routers\n", intro, *parts])


def _listed(said: dict[str, str]) -> str:
    return "".join(f"- **{label}.** {said[label]}\n" for label in PARTS)


def _row(row: PolicyRow) -> str:
    setting = f" (`{row.setting.form}`)" if row.setting else ""
    return f"| `{row.name}` | {row.kind} | {row.description}{setting} | {row.paper} |"


if __name__ == "__main__":
    RULES.write_text(rules_text(), encoding="utf-8")
