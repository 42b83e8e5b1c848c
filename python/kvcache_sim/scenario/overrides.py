"""``--set a.b=c``: one value of a scenario from the command line."""

from __future__ import annotations

import re
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.yaml_tree import Path, Tree, parse_value

_STEP = r"([^.\[\]]+)((?:\[\d{1,18}\])*)"
_MAX_INDEX = 9_999


def apply_override(tree: Tree, assignment: str) -> None:
    """Apply an assignment (``tiers.cpu.capacity=80GiB``, ``machines[0].…=…``) to a tree.

    Missing mappings and list entries are created; the value is YAML, and ``null`` removes a setting. Raises
    UsageError for an invalid assignment and for a path through a plain value.
    """
    key, equals, text = assignment.partition("=")
    where = f"--set {key.strip()}"
    if not equals:
        raise UsageError("not an assignment", where="--set", got=repr(assignment), expected="KEY=VALUE")
    path = parse_path(key.strip(), where)
    set_value(tree, path, parse_value(text, where), where)


def parse_path(key: str, where: str) -> Path:
    """Return the path of a dotted key: ``machines[0].tiers.cpu`` → ("machines", 0, "tiers", "cpu")."""
    path: list[str | int] = []
    for step in key.split("."):
        match = re.fullmatch(_STEP, step)
        if match is None:
            raise UsageError(
                "not a key", where=where, got=repr(key), expected="words joined by dots, such as a.b[0].c"
            )
        path.append(match[1])
        path += [int(index) for index in re.findall(r"\d+", match[2])]
    if any(isinstance(step, int) and step > _MAX_INDEX for step in path):
        raise UsageError("index too large", where=where, got=repr(key))
    return tuple(path)


def set_value(tree: Tree, path: Path, value: Any, where: str) -> None:
    """Write ``value`` at ``path``, creating missing parts of the path; record ``where`` as its source."""
    node: Any = tree.values
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        node = _enter(node, step, last, where)
        if last:
            node[step] = value
        else:
            if node[step] is None:
                node[step] = [] if isinstance(path[depth + 1], int) else {}
            node = node[step]
    for stale in [known for known in tree.locations if known[: len(path)] == path]:
        del tree.locations[stale]
    tree.locations[path] = where


def _enter(node: Any, step: str | int, last: bool, where: str) -> Any:
    """Return ``node`` ready for ``node[step]``; a list is filled up with empty mappings."""
    if isinstance(step, int):
        if not isinstance(node, list):
            raise UsageError("not a list", where=where, hint=f"[{step}] needs a list before it")
        while len(node) <= step:
            node.append({})
    elif not isinstance(node, dict):
        raise UsageError("has no parts", where=where, got=f"a plain value before {step!r}")
    elif not last and step not in node:
        node[step] = None
    return node
