"""A scenario under construction: settings written individually, and flags without a setting."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.line import LaunchLine
from kvcache_sim.scenario.load import Scenario, scenario_from_tree
from kvcache_sim.scenario.yaml_tree import Tree, parse_path, parse_value, set_value


@dataclass
class Making:
    """A launch line's scenario: its tree, and the comments above it."""

    line: LaunchLine
    tree: Tree = field(default_factory=Tree)
    #: Flags without a setting, or in conflict with the others, with their values and reasons.
    left: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    #: Environment variables with a setting.
    used: set[str] = field(default_factory=set)

    def write(self, key: str, text: str, flag: str) -> None:
        """Write a setting from its text; ``flag`` is its location in messages."""
        set_value(self.tree, parse_path(key, flag), parse_value(text, flag), flag)

    def check(self) -> Scenario:
        """Return the written settings as a scenario; raises UsageError if they are invalid."""
        return scenario_from_tree(copy.deepcopy(self.tree), Path.cwd())

    def attempt(self, settings: Mapping[str, str], flag: str) -> bool:
        """Write all settings of a group; if they are invalid, none, and leave the flag with the reason.

        Returns True if they were written. The settings written before must form a valid scenario.
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
