"""Scenarios that come with the package (``preset:NAME`` in place of a scenario file), and a starter."""

from __future__ import annotations

from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches

_PREFIX = "preset:"
_FOLDER = Path(__file__).parent / "presets"


def starter_text() -> str:
    """Return the commented scenario that ``kvsim init`` prints."""
    return Path(__file__).with_name("starter.yaml").read_text(encoding="utf-8")


def preset_names() -> list[str]:
    """Return the names of the preset scenarios."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def preset_path(name: str, where: str = "") -> Path:
    """Return the file of a preset; raises ``UsageError`` with the nearest names."""
    names = preset_names()
    if name not in names:
        near = close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise UsageError("no such preset", where=where, got=repr(name), expected=", ".join(names), hint=hint)
    return _FOLDER / f"{name}.yaml"


def folder_of(file: Path) -> Path:
    """Return the folder that a scenario's paths are relative to: its own, the current one for a preset."""
    return Path.cwd() if file.parent == _FOLDER else file.parent


def scenario_file(path: Path) -> Path:
    """Return the file of a path: the path itself, or that of ``preset:NAME``; raises as ``preset_path``."""
    text = str(path)
    return preset_path(text.removeprefix(_PREFIX), _PREFIX[:-1]) if text.startswith(_PREFIX) else path
