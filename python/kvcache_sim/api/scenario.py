"""A scenario in Python: every setting of a simulation, checked when it is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

from kvcache_sim.api.calls import public
from kvcache_sim.api.settings import lay_over
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario import load
from kvcache_sim.scenario.idle import TOLERANCES, Idle
from kvcache_sim.scenario.presets import folder_of, scenario_file
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.scenario.yaml_tree import Tree, read_tree


class Scenario:
    """Every setting of a simulation, as a scenario file has them; it never changes.

    ``Scenario(tiers={"cpu": "512GiB"})`` starts from the defaults, ``Scenario.load("my.yaml")`` from a file,
    ``with_`` from another scenario.

    Args:
        settings: Keys of a scenario, nested or dotted; sizes, rates and times are texts with their units. A
            bare value is a section's main key: ``router="round-robin"``, ``tiers={"cpu": "512GiB"}``.

        idle: ``"warn"`` leaves out a setting that nothing uses and warns, instead of raising: for loops over
            variants.

    Attributes:
        written: The settings that were given, nested, without the defaults; a copy.
        settings: Every setting with its default filled in, nested plain values; a copy.
        directory: The folder that relative paths start from.
        checked: The scenario as the simulator takes it.

    Raises:
        UsageError: A setting is wrong; ``where`` is its key, or its line in the file.
    """

    @public
    def __init__(self, *, idle: Idle = "error", **settings: Any) -> None:
        self._take(Tree(source="settings"), Path.cwd(), settings, idle)

    def _take(self, tree: Tree, directory: Path, settings: Mapping[str, Any], idle: Idle) -> None:
        lay_over(tree, settings)
        self._written, self.directory, self._idle = tree, directory, idle
        self.checked = load.scenario_from_tree(deepcopy(tree), directory, TOLERANCES[idle])

    @classmethod
    @public
    def load(cls, path: str | os.PathLike[str], *, idle: Idle = "error", **settings: Any) -> Scenario:
        """Read the scenario of a YAML file.

        Args:
            path: YAML file, in which paths are relative to its folder, or ``preset:NAME``.
            idle: ``"warn"`` leaves out and reports a setting that nothing uses.
            settings: Keys that replace those of the file.

        Raises:
            UsageError: A setting is wrong; ``where`` is the line of the file, or the key.
            InputOutputError: The file cannot be read.
        """
        file = scenario_file(Path(path))
        return cls._made(read_tree(load.read_scenario(file), str(file)), folder_of(file), settings, idle)

    @classmethod
    @public
    def from_launch_line(cls, line: str, *, gpu: str = "", model: str = "", **settings: Any) -> Scenario:
        """Read the scenario of an engine's launch line, as ``kvsim init --from`` writes it.

        Args:
            line: The line, or a file with one: ``"vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2"``.
            gpu: The GPU, as ``kvsim gpus list`` names it. "": the line's, else h100.
            model: The model, where the line's is not known.
            settings: Keys that replace those of the line.

        Raises:
            UsageError: The line is of no known engine, or a value is wrong.
        """
        from kvcache_sim.scenario.launch.pasted import read_pasted
        from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch

        try:
            text = scenario_of_launch(read_pasted(line), gpu, model)
        except UsageError as error:
            error.where = error.where.replace("--from", "line")
            raise
        return cls.from_yaml(text, **settings)

    @classmethod
    @public
    def from_yaml(cls, text: str, *, idle: Idle = "error", **settings: Any) -> Scenario:
        """Read the scenario of YAML text.

        Args:
            text: YAML; paths in it are relative to the working directory.
            idle: ``"warn"`` leaves out and reports a setting that nothing uses.
            settings: Keys that replace those of the text.

        Raises:
            UsageError: A setting is wrong.
        """
        return cls._made(read_tree(text.encode(), "scenario"), Path.cwd(), settings, idle)

    @classmethod
    def _made(cls, tree: Tree, directory: Path, settings: Mapping[str, Any], idle: Idle) -> Scenario:
        made = cls.__new__(cls)
        made._take(tree, directory, settings, idle)
        return made

    @public
    def with_(self, *, idle: Idle | None = None, **settings: Any) -> Scenario:
        """Return this scenario with some settings replaced.

        Args:
            idle: ``"warn"`` leaves out and reports a setting that nothing uses; None: as this scenario does.
            settings: Keys, nested or dotted; None is a file's ``null``.

        Raises:
            UsageError: A setting is wrong.
        """
        return self._made(deepcopy(self._written), self.directory, settings, idle or self._idle)

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
        return self._made(tree, self.directory, {}, self._idle)

    def for_trace(self, path: str, settings: Mapping[str, Any]) -> Scenario:
        """Return the scenario for a trace file; its own generator is left out.

        Args:
            path: The trace file.
            settings: Keys that replace those of the scenario.

        Raises:
            UsageError: A setting is wrong.
        """
        asked = {"trace.path": path, **settings}
        return self._made(self._without_generator(), self.directory, asked, self._idle)

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
        for step in str(key).split("."):
            if not isinstance(value, dict) or step not in value:
                raise KeyError(key)
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


def as_scenario(given: ScenarioLike, idle: Idle | None = None) -> Scenario:
    """Return a scenario, of its own ``idle`` unless one is given; text is the path of a file."""
    if isinstance(given, Scenario):
        return given if idle is None else given.with_(idle=idle)
    if given is None or isinstance(given, Mapping):
        return Scenario(idle=idle or "error", **(given or {}))
    return Scenario.load(given, idle=idle or "error")
