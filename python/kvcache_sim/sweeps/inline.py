"""A small study on the command line: one scenario, a few settings to vary, no sweep file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.overrides import apply_override
from kvcache_sim.scenario.yaml_tree import Tree, parse_value
from kvcache_sim.sweeps.cell import Limits, Setting
from kvcache_sim.sweeps.space import Space
from kvcache_sim.sweeps.study import SweepFile, as_setting, load_mapping


def _parts(values: str) -> list[str]:
    """Return the values between commas; commas inside ``{…}`` and ``[…]`` belong to a value."""
    parts, depth = [""], 0
    for character in values:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def inline_sweep(
    scenario: Path | None, trace: Path | None, fixed: Sequence[str], grid: Sequence[str], study: str = "sweep"
) -> SweepFile:
    """Return the study of a command line: a scenario or a trace, settings for all, ``KEY=A,B,C`` to vary.

    Raises ``UsageError`` naming the option that is wrong.
    """
    tree = Tree(source="--set")
    if scenario is not None:
        tree.values = dict(load_mapping(scenario))
    folder = scenario.parent if scenario is not None else Path()
    if trace is not None:
        section = dict(tree.values.get("trace") or {})
        tree.values["trace"] = {**section, "path": str(trace.absolute())}
    for assignment in fixed:
        apply_override(tree, assignment)
    columns: dict[str, list[Setting]] = {}
    for text in grid:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or not values.strip():
            raise UsageError("nothing to vary", where="--grid", got=repr(text), expected="KEY=A,B,C")
        parsed = [parse_value(value.strip(), f"--grid {name}") for value in _parts(values)]
        columns[name.strip()] = [as_setting(value, f"--grid {name}") for value in parsed]
    space = Space(grid=columns)
    space.size()
    return SweepFile(folder / study, study, tree.values, space, 1, 0, Limits())
