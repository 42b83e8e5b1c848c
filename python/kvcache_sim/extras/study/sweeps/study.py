"""A study: ``sweep.yaml``, or one scenario with a few settings to vary on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.units import parse_size_bytes, parse_time_ns
from kvcache_sim.extras.study.sweeps.cell import Limits, Setting
from kvcache_sim.extras.study.sweeps.space import Choice, Interval, Space, interval
from kvcache_sim.scenario.load import nearest_names
from kvcache_sim.scenario.presets import folder_of, scenario_file
from kvcache_sim.scenario.validation import NAME_EXPECTED, NAME_PATTERN
from kvcache_sim.scenario.yaml_tree import Tree, apply_override, parse_value, read_tree

_KEYS = ("name", "scenario", "grid", "zip", "list", "random", "repeats", "seed", "limits")
_MAX_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A study as written. ``scenario`` is a path relative to the file, or the scenario itself."""

    path: Path
    name: str
    scenario: str | Mapping[str, Any]
    space: Space
    #: Runs of each row of settings, with seeds derived from ``seed``; the first keeps the scenario's own.
    #: None: five if requests are generated and something besides sizes is compared, else one.
    repeats: int | None
    seed: int
    limits: Limits


def read_sweep_file(path: Path) -> SweepFile:
    """Return the study in a YAML 1.2 file; raises ``UsageError`` naming the key that is wrong."""
    content = load_mapping(path)
    where = str(path)
    _known(content, _KEYS, where)
    scenario = content.get("scenario")
    if not isinstance(scenario, (str, Mapping)):
        raise UsageError("no scenario", where=where, expected="scenario: FILE, or the scenario itself")
    random = _mapping(content.get("random"), f"{where}: random")
    _known(random, ("draws", "space"), f"{where}: random")
    draws = {
        str(name): dimension(value, f"{where}: random.space.{name}")
        for name, value in _mapping(random.get("space"), f"{where}: random.space").items()
    }
    space = Space(
        grid=_columns(content.get("grid"), f"{where}: grid"),
        columns=_columns(content.get("zip"), f"{where}: zip"),
        points=_points(content.get("list"), f"{where}: list"),
        draws=draws,
        draw_count=_whole(random.get("draws", 0), f"{where}: random.draws", 1 if draws else 0),
    )
    _check_space(space, where)
    return SweepFile(
        path=path,
        name=_name(content["name"], where) if "name" in content else path.stem,
        scenario=scenario,
        space=space,
        repeats=_whole(content["repeats"], f"{where}: repeats", 1, _MAX_REPEATS)
        if "repeats" in content
        else None,
        seed=_whole(content.get("seed", 0), f"{where}: seed", 0),
        limits=_limits(content.get("limits"), f"{where}: limits"),
    )


def load_mapping(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file; raises ``UsageError`` or ``InputOutputError``."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"sweep file not found: {path}", hint=nearest_names(path)) from None
    except OSError as error:
        raise InputOutputError(f"cannot read: {error.strerror}", where=str(path)) from None
    return read_tree(data, str(path)).values


def _name(value: object, where: str) -> str:
    """Return a sweep's name, which names its directory."""
    if not re.fullmatch(NAME_PATTERN, str(value)):
        raise UsageError("not usable", where=f"{where}: name", got=repr(value)[:80], expected=NAME_EXPECTED)
    return str(value)


def _mapping(value: object, where: str, expected: str = "key: value lines") -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError("not a mapping", where=where, got=repr(value)[:80], expected=expected)
    return value


def _known(content: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in content:
        if key not in keys:
            near = close_matches(str(key), keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(keys)}"
            raise UsageError(f"unknown key {key!r}", where=where, hint=hint)


def _whole(value: object, where: str, least: int, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError("not a usable number", where=where, got=repr(value), expected=f"{least} to {most}")
    return value


def as_setting(value: object, where: str) -> Setting:
    """Return a value that a scenario's setting can have; raises ``UsageError`` for any other."""
    if value is None or isinstance(value, (str, int, float, bool, dict)):
        return value
    raise UsageError(
        "not a value",
        where=where,
        got=repr(value)[:80],
        expected="text, a number, a boolean, null or a section",
    )


def _columns(value: object, where: str) -> dict[str, list[Setting]]:
    columns = {}
    for name, values in _mapping(value, where).items():
        if not isinstance(values, list) or not values:
            raise UsageError(
                "not a list of values", where=f"{where}.{name}", got=repr(values)[:80], expected="[a, b, …]"
            )
        columns[str(name)] = [as_setting(item, f"{where}.{name}") for item in values]
    return columns


def _points(value: object, where: str) -> list[dict[str, Setting]]:
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        raise UsageError("not a list of settings", where=where, got=repr(value)[:80])
    return [
        {str(name): as_setting(item, f"{where}[{n}].{name}") for name, item in _mapping(row, where).items()}
        for n, row in enumerate(value)
    ]


def dimension(value: object, where: str) -> Interval | Choice:
    """Return the values of a setting that a search may try; raises UsageError."""
    content = _mapping(value, where, "{low: A, high: B} or {choice: [A, B, …]}")
    _known(content, ("low", "high", "scale", "choice"), where)
    if "choice" in content:
        choices = content["choice"]
        if len(content) > 1 or not isinstance(choices, list) or not choices:
            raise UsageError("not a choice", where=where, expected="choice: [a, b, …] alone")
        return Choice(tuple(as_setting(item, where) for item in choices))
    if "low" not in content or "high" not in content:
        raise UsageError("no range", where=where, expected="low and high, or choice")
    return interval(content["low"], content["high"], str(content.get("scale", "linear")), where)


def _check_space(space: Space, where: str) -> None:
    lengths = {name: len(values) for name, values in space.columns.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError("zipped lists differ in length", where=f"{where}: zip", got=str(lengths))
    seen: dict[str, str] = {}
    point_names = {name for point in space.points for name in point}
    parts = {"grid": space.grid, "zip": space.columns, "list": point_names, "random": space.draws}
    for part, names in parts.items():
        for name in names:
            if name in seen:
                raise UsageError(f"{name} is set twice", where=where, got=f"{seen[name]} and {part}")
            seen[name] = part
    space.size()


def _limits(value: object, where: str) -> Limits:
    content = _mapping(value, where)
    _known(content, ("time", "memory", "retries"), where)
    time_s = parse_time_ns(str(content["time"])) / 1e9 if "time" in content else None
    memory_bytes = parse_size_bytes(str(content["memory"])) if "memory" in content else None
    if time_s == 0 or memory_bytes == 0:
        raise UsageError("a limit of zero", where=where, expected="a limit above zero, or none")
    return Limits(time_s, memory_bytes, _whole(content.get("retries", 2), f"{where}.retries", 0, 100))


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
    folder = Path()
    if scenario is not None:
        file = scenario_file(scenario)
        tree.values, folder = dict(load_mapping(file)), folder_of(file)
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
    return SweepFile(folder / study, study, tree.values, space, None, 0, Limits())
