"""A scenario under construction: its settings, what is left of the line, and its comments."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.releases import (
    Release,
    engine_releases,
    engines,
    newest_equal,
    parse_release,
    parse_version,
)
from kvcache_sim.scenario.idle import IdleError, leave_out
from kvcache_sim.scenario.launch.flags import Flag
from kvcache_sim.scenario.launch.line import LaunchLine
from kvcache_sim.scenario.load import Scenario, scenario_from_tree
from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.scenario.yaml_tree import Tree, parse_path, parse_value, set_value

#: Location of settings that no flag gives.
DEFAULT = "--from"
_ON, _OFF = ("", "true", "1", "yes", "on"), ("false", "0", "no", "off")
_UNKNOWN = "no flag of a release that was read"


class Given(Value):
    """A flag or variable of the line with its value; ``on`` is False for a switch that is switched off."""

    flag: Flag
    text: str = ""
    on: bool = True

    def __str__(self) -> str:
        """Return it as it may be written."""
        if self.flag.alone:
            return self.flag.name if self.on else f"--no-{self.flag.name.removeprefix('--')}"
        joint = " " if self.flag.name.startswith("-") else "="
        return f"{self.flag.name}{joint}{self.text}".strip()


Kind = Literal["times", "decides", "not simulated", "assumed", "no effect"]
_HEADS: dict[Kind, str] = {
    "times": "step times",
    "decides": "not simulated, and it can change the answer",
    "not simulated": "not simulated",
    "assumed": "assumed",
    "no effect": "cannot change the answer",
}


class Note(Value):
    """A comment on flags: what is said of them, and the reason."""

    kind: Kind
    what: str
    why: str = ""


def given_flags(line: LaunchLine) -> dict[str, Given]:
    """Return the flags of a line by their names, and those that no release has with their own name."""
    spellings = line.engine.spellings()
    found: dict[str, Given] = {}
    for name, text in line.flags.items():
        spelled = spellings.get(name)
        if spelled is None:
            found[name] = Given(Flag(name, not_simulated=_UNKNOWN), text)
        elif spelled.flag.alone and text.lower() in _ON + _OFF:
            found[spelled.flag.name] = Given(spelled.flag, "", spelled.on == (text.lower() in _ON))
        else:
            found[spelled.flag.name] = Given(spelled.flag, text)
    return found


@dataclass
class Making:
    """A launch line's scenario: its tree, the flags that are not in it yet, and the comments above it."""

    line: LaunchLine
    tree: Tree = field(default_factory=Tree)
    given: dict[str, Given] = field(default_factory=dict)
    #: Environment variables by name; those that are not read yet.
    variables: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    #: Flags that are read, by their names.
    read: dict[str, Given] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given = given_flags(self.line)
        self.variables = dict(one.partition("=")[::2] for one in self.line.environment)

    @property
    def release(self) -> Release:
        """The engine's release: the line's, else the newest whose decisions are recorded.

        An engine without a table is served by vLLM's.
        """
        name = self.line.engine.name if self.has_rules else "vllm"
        if not self.line.release or not self.has_rules:
            return newest_equal(name)
        oldest = engine_releases(name).read[0]
        version = parse_version(self.line.release.partition("@")[2])
        return parse_release(self.line.release) if version >= oldest else Release(name, oldest)

    @property
    def has_rules(self) -> bool:
        """True for an engine whose releases and rules are known."""
        return self.line.engine.name in engines()

    def take(self, name: str) -> Given | None:
        """Return a flag and count it as read; None if the line does not have it."""
        if name in self.given:
            self.read[name] = self.given[name]
        return self.given.pop(name, None)

    def text_of(self, name: str, usual: str = "") -> str:
        """Return the value of a flag, which stays unread."""
        return self.given[name].text if name in self.given else usual

    def write(self, key: str, text: str, flag: str) -> None:
        """Write a setting from its text; ``flag`` is its location in messages."""
        set_value(self.tree, parse_path(key, flag), parse_value(text, flag), flag)

    def has(self, key: str) -> bool:
        """Return True if a setting is written."""
        section = self.tree.values
        *path, last = key.split(".")
        for step in path:
            section = section.get(step) or {}
        return last in section

    def check(self) -> Scenario:
        """Return the written settings as a scenario; raises UsageError if they are invalid."""
        return scenario_from_tree(copy.deepcopy(self.tree), Path.cwd())

    def settle(self, flag: str = "") -> Scenario:
        """Leave out settings that have no effect with the others, and return the scenario.

        Raises UsageError if it is invalid, or if a setting of ``flag`` has no effect.
        """
        while True:
            try:
                return self.check()
            except IdleError as error:
                if not error.path or error.where == flag or "has no effect" not in error.what:
                    raise
                take_out(error.path, self.tree)
                if error.where != DEFAULT:
                    self.note("no effect", str(self.read.get(str(error.where), error.where)), error.hint)

    def attempt(self, settings: Mapping[str, str], flag: str) -> str:
        """Write all settings of a group, or none if they are invalid; return why they are, "" if valid.

        A setting with the text "" is left out.
        """
        before, notes = copy.deepcopy(self.tree), list(self.notes)
        try:
            for key, text in settings.items():
                if text:
                    self.write(key, text, flag)
                elif self.has(key):
                    take_out(parse_path(key, flag), self.tree)
            self.settle(flag)
        except UsageError as error:
            self.tree, self.notes = before, notes
            alone = error.hint and (error.where == flag or "has no effect" in error.what)
            return error.hint if alone else f"{error.what} {error.hint}".strip()
        return ""

    def note(self, kind: Kind, what: str, why: str = "") -> None:
        """Add a comment on a flag, or an assumption."""
        self.notes.append(Note(kind, what, why))

    def leave(self, given: Given, why: str, decides: bool = True) -> None:
        """Say that a flag has no setting here, and why."""
        self.note("decides" if decides else "not simulated", str(given), why)

    def comments(self) -> Iterator[str]:
        """Yield the comments: what can change the answer comes first, what cannot comes last."""
        for kind, head in _HEADS.items():
            said: dict[str, list[str]] = {}
            for note in self.notes:
                if note.kind == kind:
                    said.setdefault(note.why, []).append(note.what)
            for why, whats in said.items():
                if not why or kind == "assumed":
                    yield from (f"{head}: {what}" for what in whats)
                else:
                    yield f"{head}: {', '.join(whats)} ({why})"


def take_out(path: KeyPath, tree: Tree) -> None:
    """Remove a setting, and sections that are empty without it."""
    leave_out(path, tree)
    for depth in range(len(path) - 1, 0, -1):
        section = tree.values
        for step in path[: depth - 1]:
            section = section[str(step)]
        if section[str(path[depth - 1])]:
            return
        del section[str(path[depth - 1])]
