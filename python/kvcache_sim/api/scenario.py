"""A scenario in Python: every setting of a simulation, checked when it is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

from kvcache_sim.api.settings import lay_over
from kvcache_sim.scenario import load
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.scenario.yaml_tree import Tree, read_tree


class Scenario:
    """Every setting of a simulation, as a scenario file has them; it never changes.

    ``Scenario(tiers={"cpu": "512GiB"})`` starts from the defaults, ``Scenario.load("my.yaml")`` from a file,
    ``with_`` from another scenario.

    Args:
        settings: Keys of a scenario, nested or dotted; sizes, rates and times are texts with their units. A
            bare value is a section's main key: ``router="round-robin"``, ``tiers={"cpu": "512GiB"}``.

    Attributes:
        written: The settings that were given, nested, without the defaults; a copy.
        settings: Every setting with its default filled in, nested plain values; a copy.
        directory: The folder that relative paths start from.
        checked: The scenario as the simulator takes it.

    Raises:
        UsageError: A setting is wrong; ``where`` is its key, or its line in the file.
    """

    def __init__(self, **settings: Any) -> None:
        self._take(Tree(source="settings"), Path.cwd(), settings)

    def _take(self, tree: Tree, directory: Path, settings: Mapping[str, Any]) -> None:
        lay_over(tree, settings)
        self._written, self.directory = tree, directory
        self.checked = load.scenario_from_tree(deepcopy(tree), directory)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **settings: Any) -> Scenario:
        """Read the scenario of a YAML file.

        Args:
            path: YAML file; paths in it are relative to its folder.
            settings: Keys that replace those of the file.

        Raises:
            UsageError: A setting is wrong; ``where`` is the line of the file, or the key.
            InputOutputError: The file cannot be read.
        """
        file = Path(path)
        return cls._made(read_tree(load.read_scenario(file), str(file)), file.parent, settings)

    @classmethod
    def from_yaml(cls, text: str, **settings: Any) -> Scenario:
        """Read the scenario of YAML text.

        Args:
            text: YAML; paths in it are relative to the working directory.
            settings: Keys that replace those of the text.

        Raises:
            UsageError: A setting is wrong.
        """
        return cls._made(read_tree(text.encode(), "scenario"), Path.cwd(), settings)

    @classmethod
    def _made(cls, tree: Tree, directory: Path, settings: Mapping[str, Any]) -> Scenario:
        made = cls.__new__(cls)
        made._take(tree, directory, settings)
        return made

    def with_(self, **settings: Any) -> Scenario:
        """Return this scenario with some settings replaced.

        Args:
            settings: Keys, nested or dotted; None is a file's ``null``.

        Raises:
            UsageError: A setting is wrong.
        """
        return self._made(deepcopy(self._written), self.directory, settings)

    def for_given_requests(self, block_size: int, settings: Mapping[str, Any]) -> Scenario:
        """Return the scenario for requests given in Python; its own trace or generator is left out.

        Args:
            block_size: Tokens of the requests' block ids, which are the cache's unless that is set.
            settings: Keys that replace those of the scenario.

        Raises:
            UsageError: A setting is wrong.
        """
        tree = self._without_generator()
        tree.values.pop("trace", None)
        lay_over(tree, settings)
        cache = tree.values.get("cache") or {}
        if isinstance(cache, dict) and "block_size" not in cache:
            tree.values["cache"] = {**cache, "block_size": block_size}
        return self._made(tree, self.directory, {})

    def for_trace(self, path: str, settings: Mapping[str, Any]) -> Scenario:
        """Return the scenario for a trace file; its own generator is left out.

        Args:
            path: The trace file.
            settings: Keys that replace those of the scenario.

        Raises:
            UsageError: A setting is wrong.
        """
        return self._made(self._without_generator(), self.directory, {"trace.path": path, **settings})

    def _without_generator(self) -> Tree:
        tree = deepcopy(self._written)
        if "kind" in (tree.values.get("workload") or {}):
            del tree.values["workload"]
        return tree

    @property
    def written(self) -> dict[str, Any]:
        """Return the settings that were given, without the defaults; a copy."""
        return deepcopy(self._written.values)

    @property
    def settings(self) -> dict[str, Any]:
        """Return every setting with its default filled in, as plain values; a copy."""
        return deepcopy(self.checked.resolved)

    def __getitem__(self, key: str) -> Any:
        """Return a setting by its dotted key, or a section; raises KeyError."""
        value: Any = self.checked.resolved
        for step in key.split("."):
            value = value[step]
        return deepcopy(value)

    def to_yaml(self) -> str:
        """Return the scenario with every default filled in, as YAML that gives the same run again."""
        return to_yaml(self.checked.resolved)

    def __eq__(self, other: object) -> bool:
        """Return True if every setting is the same."""
        return isinstance(other, Scenario) and self.checked.resolved == other.checked.resolved

    __hash__ = None  # type: ignore[assignment]  # settings are lists and mappings

    def __repr__(self) -> str:
        tiers = ", ".join(
            f"{name} {tier.capacity}" for name, tier in self.checked.model.tiers.present.items()
        )
        return f"<Scenario {self.checked.model.name}: {self.checked.model.model}, {tiers}>"


#: Accepted as a scenario: a ``Scenario``, a file, settings, or None (all defaults).
ScenarioLike: TypeAlias = Scenario | str | os.PathLike[str] | Mapping[str, Any] | None


def as_scenario(given: ScenarioLike) -> Scenario:
    """Return a scenario; text is the path of a file."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, Mapping):
        return Scenario(**given)
    return Scenario() if given is None else Scenario.load(given)
