"""A scenario in the making: settings written one by one, and what cannot be one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.launch.line import LaunchLine
from kvcache_sim.scenario.load import Scenario, scenario_from_tree
from kvcache_sim.scenario.overrides import parse_path, set_value
from kvcache_sim.scenario.yaml_tree import Tree, parse_value


@dataclass
class Making:
    """A launch line's scenario: its tree, and what stands above it as comments."""

    line: LaunchLine
    tree: Tree = field(default_factory=Tree)
    #: Flags that no setting stands for, or none beside the others, with their values and reasons.
    left: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)

    def write(self, key: str, text: str, flag: str) -> None:
        """Write a setting as its text; ``flag`` is its place in messages."""
        set_value(self.tree, parse_path(key, flag), parse_value(text, flag), flag)

    def check(self) -> Scenario:
        """Return what was written as a scenario; raises UsageError where it is none."""
        return scenario_from_tree(copy.deepcopy(self.tree), Path.cwd())

    def attempt(self, settings: Mapping[str, str], flag: str) -> bool:
        """Write settings that go together, or none of them and the flag with the reason; return which.

        What was written before must be a scenario.
        """
        before = copy.deepcopy(self.tree)
        try:
            for key, text in settings.items():
                self.write(key, text, flag)
            self.check()
        except UsageError as error:
            self.tree = before
            why = error.hint if error.where == flag else f"{error.what}: {error.hint}"
            self.left[flag] = f"{self.line.flags.get(flag, '')} ({why or error.what})".strip()
            return False
        return True
