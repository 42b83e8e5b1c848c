"""The packaged data files, by folder and name: ``data/models``, ``data/gpus``, ``data/step_times``, …"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim._core import toml_values
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches

_DATA = Path(__file__).parent / "data"
#: Folder → the command that lists its entries.
_LISTED = {"models": "kvsim models list", "gpus": "kvsim gpus list", "step_times": "kvsim step-times list"}


@cache
def entry_names(folder: str) -> tuple[str, ...]:
    """Return the names of a folder's entries in alphabetical order."""
    files = os.listdir(_DATA / folder)
    return tuple(sorted([file.removesuffix(".toml") for file in files if file.endswith(".toml")]))


def unknown_name(what: str, name: str, names: tuple[str, ...], listed: str = "") -> UsageError:
    """Return the error for a name that is not among ``names``, with the nearest names.

    ``listed`` is the command that lists the names, if they do not fit a line.
    """
    near = near_names(name, names)
    return UsageError(
        f"unknown {what}",
        got=repr(name),
        expected=f"a name that '{listed}' prints" if listed else "one of " + ", ".join(names),
        hint=f"did you mean {' or '.join(near)}?" if near else "",
    )


def near_names(name: str, names: tuple[str, ...]) -> list[str]:
    """Return at most three of ``names``: those that begin with a name, else the most similar ones."""
    asked = name.lower()
    begun = [known for known in names if asked and known.startswith(asked)]
    return (begun or close_matches(asked, names, 3, 0.55))[:3]


def read_entry(folder: str, what: str, name: str) -> dict[str, Any]:
    """Return one packaged entry as parsed TOML, its own mapping of values that all callers share.

    Raises UsageError with the known names and the nearest one for an unknown name; ``what`` is the kind of
    entry in the message.
    """
    names = entry_names(folder)
    if name.lower() not in names:
        raise unknown_name(what, name, names, _LISTED.get(folder, ""))
    return dict(_entry(folder, name.lower()))


@cache
def _entry(folder: str, name: str) -> dict[str, Any]:
    return toml_values((_DATA / folder / f"{name}.toml").read_text(encoding="utf-8"))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return a user's TOML file; UsageError with the expected kind of file if it is not valid."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(f"{what} file not found", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not a {what} file: {error}", where=str(path)) from None


def check_keys(table: dict[str, Any], known: dict[str, type | tuple[type, ...]], where: str) -> None:
    """Raise UsageError for a key that is unknown, has a value of the wrong type, or is not finite."""
    for key, value in table.items():
        if key not in known:
            raise UsageError(**_unknown_key(key, tuple(known), where))
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise UsageError(f"{key} has the wrong type", where=where, got=repr(value))
        if isinstance(value, float) and value - value != 0.0:
            raise UsageError(f"{key} must be finite", where=where, got=repr(value))


def _unknown_key(key: str, known: tuple[str, ...], where: str) -> dict[str, str]:
    refusal = unknown_name("key", key, known)
    return {"what": refusal.what, "where": where, "got": refusal.got, "hint": refusal.hint}


def topology_suffix(tensor_parallel: int, expert_parallel: int = 1, data_parallel: int = 1) -> str:
    """Return a topology as in a set's name: ``tp2-ep4-dp2``, without degrees of 1 except the TP degree."""
    more = (("ep", expert_parallel), ("dp", data_parallel))
    return f"tp{tensor_parallel}" + "".join(f"-{key}{value}" for key, value in more if value > 1)
