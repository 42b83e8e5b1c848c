"""Settings that one scenario of several cannot use, such as a write policy where no lower tier is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.yaml_tree import Path, Tree

#: Whether a setting without effect, which stands at a path of a tree, is left out instead of refused.
Tolerates = Callable[[Path, Tree], bool]


@dataclass
class IdleError(UsageError):
    """A setting that cannot have an effect; ``path`` is where it stands in the tree."""

    path: Path = ()


#: Sections whose settings say how something is done: where there is nothing to do they can be left out. One
#: that names tiers, machines or requests would leave something out that was asked for.
_HOW = ("write", "fetch", "prefetch", "router", "channels", "handover", "session_view", "prefix_view")


def of_one_run(path: Path, tree: Tree) -> bool:
    """Tolerate what a file says and an option took the use of: a preset may be varied one key at a time."""
    return varied(path, tree) and not _typed(tree.place(path)) and any(map(_typed, tree.places.values()))


def varied(path: Path, tree: Tree) -> bool:
    """Tolerate what another cell of a study, or another side of a comparison, may use."""
    return path[0] in _HOW and _holder(path, tree) is not None


def leave_out(path: Path, tree: Tree) -> None:
    """Take a setting out of a tree."""
    holder = _holder(path, tree)
    assert holder is not None
    if isinstance(holder, list) and len(holder) == 1:
        leave_out(path[:2], tree)  # a channel without edges, a list of no edges
        return
    del holder[path[-1]]
    for stale in [known for known in tree.places if known[: len(path)] == path]:
        del tree.places[stale]


def _typed(place: str) -> bool:
    """Return whether a place is a ``--set`` or a key that Python gave; a file's has colons."""
    section = place.partition(".")[0].partition("[")[0]
    return place.startswith("--set ") or (":" not in place and section in ScenarioModel.model_fields)


def _holder(path: Path, tree: Tree) -> Any:
    """Return the mapping or list that has the last step of a path; None where nothing is written there."""
    node: Any = tree.values
    for step in path[:-1]:
        if not (isinstance(node, dict) and step in node):
            return None
        node = node[step]
    last = path[-1]
    if isinstance(node, dict):
        return node if last in node else None
    return node if isinstance(node, list) and isinstance(last, int) and last < len(node) else None
