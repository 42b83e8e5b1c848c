"""Settings given in Python, nested or dotted, written into a scenario."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.plugins.load import name_given
from kvcache_sim.scenario.yaml_tree import Path, Tree, dotted, parse_path, set_value

#: Section → the key that a bare value stands for; ``*`` is any name.
MAIN_KEYS = {
    "cache": "policy",
    "channels.*": "preset",
    "cluster": "machines",
    "cluster.pool": "capacity",
    "fetch": "policy",
    "fleet.scaling": "policy",
    "prefetch": "policy",
    "router": "policy",
    "tiers.*": "capacity",
    "trace": "path",
    "workload": "kind",
    "write": "policy",
}


def lay_over(tree: Tree, settings: Mapping[str, object]) -> None:
    """Write settings into a tree: ``tiers={"cpu": "512GiB"}`` and ``{"tiers.cpu.capacity": "512GiB"}`` alike.

    A section given as text or a number sets its main key: ``router="round-robin"`` is ``router.policy``.
    A mapping changes the keys it names and leaves the others; a workload with a ``kind`` replaces the one
    before it whole; None is a file's ``null``. Raises UsageError for an unknown key and a value that no
    setting can have; its ``where`` is the key.
    """
    for key, value in settings.items():
        path = parse_path(key, key)
        for at, leaf in _leaves(path, plain(value, key)):
            set_value(tree, at, leaf, dotted(at))


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value and not (path == ("workload",) and "kind" in value):
        for key, inner in value.items():
            yield from _leaves((*path, *parse_path(key, dotted(path))), inner)
    elif (main := _main_key(path, value)) is not None:
        yield from _leaves(path, {main: value})
    else:
        yield path, value


def full_key(key: str, value: object) -> str:
    """Return the dotted key that a value sets: ``router.policy`` for text under ``router``."""
    main = _main_key(parse_path(key, key), value)
    return key if main is None else f"{key}.{main}"


def _main_key(path: Path, value: object) -> str | None:
    """Return the key of a section that a bare value stands for; None where several could be meant."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    return MAIN_KEYS.get(dotted(path)) or (MAIN_KEYS.get(f"{path[0]}.*") if len(path) == 2 else None)


def plain(value: object, where: str) -> Any:
    """Return a Python value as plain values of a scenario file, a class by its name; raises UsageError."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return name_given(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{where}.{key}") for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, f"{where}[{index}]") for index, inner in enumerate(value)]
    if isinstance(value, PathLike):
        return str(fspath(value))
    scalar = getattr(value, "item", None)  # a number of numpy's
    if scalar is not None and getattr(value, "ndim", None) == 0:
        return plain(scalar(), where)
    raise UsageError(
        "not a setting",
        where=where,
        got=f"{type(value).__name__}",
        expected="text, a number, true or false, None, a list, a mapping, or a policy's class",
    )
