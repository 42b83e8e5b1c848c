"""Imports go down only: a room may import its own floor's room and the floors below."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from kvcache_sim.backends import REFERENCES, reference

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "kvcache_sim"

FLOOR = {
    "cli": 8,
    "__main__": 9,
    "api": 7.5,  # what Python sees; the verbs stand on it
    "sizing": 7.2,
    "live": 7.2,  # serves a scenario in real time; alone reads the wall clock
    "report": 7,
    "sweeps": 7,
    "scenario": 6.5,  # lowers YAML to the settings that simulation takes
    "simulation": 6,
    "metrics": 5,
    "serving": 4,
    "spec": 3,  # imports nothing of what it specifies; simulation runs it
    "reference": 3.6,  # imported by tests, and by name through backends
    "replay": 3.5,
    "cache": 3,
    "channels": 2.7,
    "policies": 2.5,
    "workload": 2,
    "model": 2,
    "engine": 1,
    "errors": 0,
    "values": 0,
    "output": 0.5,  # its refusals are errors
    "tier_table": 0,
    "tiers": 0.5,  # derived from the table
    "units": 0.5,  # its refusals are errors
    "rows": 0,
    "spelling": 0,
    "file_lock": 0.5,  # its refusals are errors
    "backends": 0.5,  # its refusals are errors
    "rng": 0.5,  # its refusals are errors
    "_core": -1,
}


def imported_rooms(source: str) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "kvcache_sim":
                names = [f"kvcache_sim.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {n.split(".")[1] for n in names if n.startswith("kvcache_sim.")}
    return rooms - {"__version__"}


def test_every_room_has_a_floor():
    rooms = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir()}
    rooms = {r.split(".")[0] for r in rooms} - {"__pycache__", "__init__", "py", "_core"}
    assert rooms <= set(FLOOR)


def test_imports_go_down_only():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for target in imported_rooms(path.read_text()):
            if target != room and FLOOR[target] >= FLOOR[room]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_references_are_known_by_name_only():
    rooms = {p: imported_rooms(p.read_text()) for p in PACKAGE.rglob("*.py")}
    wrong = [
        p for p, found in rooms.items() if "reference" in found and PACKAGE / "reference" not in p.parents
    ]
    assert not wrong
    for name in REFERENCES:
        assert reference(name)


def imported_modules(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports, for typing alone included."""
    imports: dict[str, set[str]] = {}
    for module, source in sources.items():
        found = imports[module] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in sources else node.module for name in whole}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        found &= set(sources) - {module}
    return imports


def test_no_two_modules_need_each_other():
    sources = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        sources[".".join(parts).removesuffix(".__init__")] = path.read_text()
    TopologicalSorter(imported_modules(sources)).prepare()


def test_a_cycle_is_seen():
    with pytest.raises(CycleError):
        TopologicalSorter(imported_modules({"p.a": "from p import b", "p.b": "from p.a import A"})).prepare()


def test_the_walk_sees_an_upward_import():
    assert imported_rooms("from kvcache_sim.cli import main\nimport kvcache_sim.serving.batch") == {
        "cli",
        "serving",
    }
