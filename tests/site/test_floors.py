"""Imports go down only: a package may import itself and the packages of lower layers."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "kvcache_sim"

#: The layer of each package and module, as ARCHITECTURE.md draws them.
LAYER = {
    "__main__": 11,
    "cli": 10,
    "api": 9,
    "extras": 8,  # nothing below cli and api imports it
    "report": 7,
    "scenario": 6,  # lowers YAML to the settings that simulation takes
    "simulation": 5.5,
    "metrics": 5,
    "spec": 4.5,  # takes settings from below, and nothing of what it specifies; simulation runs it
    "serving": 4,
    "replay": 4,
    "cache": 3.5,
    "channels": 3,
    "policies": 2,
    "workload": 2,
    "model": 2,
    "engine": 1,
    "base": 0,
    "_core": -1,
}


def imported_packages(source: str) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "kvcache_sim":
                names = [f"kvcache_sim.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {n.split(".")[1] for n in names if n.startswith("kvcache_sim.")}
    return packages - {"__version__"}


def test_every_package_has_a_layer():
    packages = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir()}
    packages = {r.split(".")[0] for r in packages} - {"__pycache__", "__init__", "py", "_core"}
    assert packages <= set(LAYER)


def test_imports_go_down_only():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if package == "__init__":
            continue
        for target in imported_packages(path.read_text()):
            if target != package and LAYER[target] >= LAYER[package]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_whoever_opens_the_package_sees_seventeen_names():
    own = {"__init__.py", "__init__.pyi", "__main__.py", "_core.pyi", "py.typed"}
    shown = {path.name for path in PACKAGE.iterdir() if path.name not in own and path.suffix != ".so"}
    assert shown - {"__pycache__"} == set(LAYER) - {"__main__", "_core", "engine"} | {"engine.py"}


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
