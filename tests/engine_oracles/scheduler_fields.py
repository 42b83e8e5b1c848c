"""The settings of an engine's scheduler, from its wheel, against the stored list of what becomes of each.

Run as a program: FOLDER; the folder's name says the engine.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_suffix(".toml")
#: What becomes of a setting.
KINDS = ("simulated", "named", "left_out")


def stored(engine: str) -> dict[str, Any]:
    """Return an engine's part of the list."""
    found: dict[str, Any] = tomllib.loads(LIST.read_text())[engine]
    return found


def fields(source: str, name: str) -> set[str]:
    """Return the fields of a class in a source text; class variables and arguments of its start are none."""
    [made] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    given = [
        node for node in made.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    return {
        node.target.id
        for node in given
        if isinstance(node.target, ast.Name)
        and not ast.unparse(node.annotation).startswith(("ClassVar", "InitVar"))
    }


def main(folder: Path) -> int:
    """Print the settings that the list lacks, and those that the wheel lacks; return 1 if there are any."""
    engine = folder.name.partition("==")[0]
    found = stored(engine)
    theirs = fields((folder / found["file"]).read_text(), found["class"])
    ours = {name for kind in KINDS for name in found[kind]}
    counts = ", ".join(f"{len(found[kind])} {kind.replace('_', ' ')}" for kind in KINDS)
    print(
        f"{engine} scheduler settings ({folder.name}): {len(theirs & ours)} of {len(theirs)} listed: {counts}"
    )
    for name in sorted(theirs ^ ours):
        print(f"{engine} scheduler settings: {name} is {'not listed' if name in theirs else 'gone'}")
    return int(theirs != ours)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
