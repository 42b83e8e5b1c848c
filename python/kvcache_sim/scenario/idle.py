"""Settings that one scenario of several cannot use, such as a write policy without a lower tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.yaml_tree import Path, Tree

#: Predicate: True if a setting without effect at a path of a tree is left out instead of refused.
Tolerates = Callable[[Path, Tree], bool]


@dataclass
class IdleError(UsageError):
    """A setting that cannot have an effect; ``path`` is its path in the tree."""

    path: Path = ()


class Contradiction(NamedTuple):
    """A setting that others rule out, such as a tier below a store that has none: never left out.

    Leaving it out would simulate something else than the scenario describes.
    """

    path: Path
    why: str


#: A setting without effect, and the reason.
Finding = tuple[Path, str] | Contradiction


def of_one_run(path: Path, tree: Tree) -> bool:
    """Tolerate a file's setting that an option made useless: a preset may be varied one key at a time."""
    if path[0] == "tiers" and len(path) == 2:
        return False  # hardware that a file names is not forgotten because of a typed key
    return (
        varied(path, tree) and not _typed(tree.location(path)) and any(map(_typed, tree.locations.values()))
    )


def varied(path: Path, tree: Tree) -> bool:
    """Tolerate a setting that another cell of a study, or another side of a comparison, may use.

    Not a common setting of machines that differ: another machine of the same cell may use it.
    """
    if path[0] in ("replica", "tiers") and tree.values.get("machines"):
        return False
    return _section(path, tree) is not None


#: A setting without effect in one run: an error, or a warning that the run keeps.
Idle = Literal["error", "warn"]
TOLERANCES: dict[Idle, Tolerates] = {"error": of_one_run, "warn": varied}


def leave_out(path: Path, tree: Tree) -> None:
    """Remove a setting from a tree."""
    section = _section(path, tree)
    assert section is not None
    if isinstance(section, list) and len(section) == 1:
        leave_out(path[:2], tree)  # a channel without edges, a list of no edges
        return
    del section[path[-1]]
    for stale in [known for known in tree.locations if known[: len(path)] == path]:
        del tree.locations[stale]


def _typed(location: str) -> bool:
    """Return True if a location is a ``--set`` or a key set from Python; a file's has colons."""
    section = location.partition(".")[0].partition("[")[0]
    return location.startswith("--set ") or (
        ":" not in location and section in ScenarioModel.__struct_fields__
    )


def _section(path: Path, tree: Tree) -> Any:
    """Return the mapping or list that has the last step of a path; None if nothing is written there."""
    node: Any = tree.values
    for step in path[:-1]:
        if not _has(node, step):
            return None
        node = node[step]
    return node if _has(node, path[-1]) else None


def _has(node: Any, step: str | int) -> bool:
    if isinstance(node, list):
        return isinstance(step, int) and step < len(node)
    return isinstance(node, dict) and step in node
