"""Verdicts on planted faults, kept between runs with a digest of their inputs, and a table of changes."""

import ast
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

#: Folders and files whose contents decide what a build does.
PRODUCT = ("python", "rust", "Cargo.toml", "Cargo.lock", "pyproject.toml")
_SUFFIXES = (".py", ".pyi", ".rs", ".toml", ".lock", ".json", ".yaml", ".csv")

CAUGHT, SURVIVED, NO_BUILD, BROKEN = "caught", "SURVIVED", "no build", "fails without a fault"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one fault, or of a test file without any fault (``fault`` is None)."""

    name: str
    verdict: str
    seconds: float
    #: Of the product, the fault, the test file and all test modules that it imports.
    digest: str
    tests: str


class Verdicts:
    """A file of verdicts, one JSON object a line; a later line replaces an earlier one of the same name.

    Lines are appended whole, so that several parts can share a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Verdict] = {}
        self.read()

    def read(self) -> dict[str, Verdict]:
        """Read the file again, of which other parts may have written some; return the verdicts by name."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._known = {row["name"]: Verdict(**row) for row in map(json.loads, lines)}
        return self._known

    def find(self, name: str, digest: str) -> Verdict | None:
        """Return the verdict that still holds, None where there is none."""
        known = self.read().get(name)
        return known if known is not None and known.digest == digest else None

    def add(self, verdict: Verdict) -> None:
        """Append a verdict."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")


def product_digest(root: Path) -> str:
    """Return a digest of the sources of a project."""
    hashed = hashlib.sha256()
    for name in PRODUCT:
        path = root / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and file.suffix in _SUFFIXES:
                hashed.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return hashed.hexdigest()


def digest_of_tests(root: Path, tests: str) -> str:
    """Return a digest of a test file, of the modules of ``tests`` that it imports, and of how many examples run."""
    hashed = hashlib.sha256(os.environ.get("KVSIM_EXAMPLES", "").encode())
    for file in _modules(root / "tests", root / tests):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()


def _modules(folder: Path, first: Path) -> list[Path]:
    """Return a file and every module of its own or of a folder that it imports, directly or not, in order."""
    found, open_files = {first}, [first]
    while open_files:
        file = open_files.pop()
        if file.suffix != ".py":
            continue
        for name in _imported(ast.parse(file.read_text())):
            for base in (parent.joinpath(*name.split(".")) for parent in (folder, file.parent)):
                for path in (base.with_suffix(".py"), base / "__init__.py"):
                    if path.exists() and path not in found:
                        found.add(path)
                        open_files.append(path)
    return sorted(found)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def table(names: Iterable[str], now: dict[str, Verdict], before: dict[str, Verdict]) -> str:
    """Return the verdicts before and now, a fault a line; one that was caught and is not any more is marked."""
    rows = [("before", "now", "fault")]
    for name in [*names, *(name for name in before if name not in now and ":" not in name)]:
        old, new = (found[name].verdict if name in found else "-" for found in (before, now))
        lost = "  <- no longer caught" if old == CAUGHT and new != CAUGHT else ""
        rows.append((old, new, name + lost))
    return "\n".join(f"{old:<9} {new:<9} {name}" for old, new, name in rows)
