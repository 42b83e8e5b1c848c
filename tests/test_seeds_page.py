"""docs/seeds.md names tests that exist and run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "seeds.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", PAGE)))


def run_tests(file: str) -> set[str]:
    """Return the tests of a file that are not skipped out of hand."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [ast.unparse(d) for d in node.decorator_list]
            if not any(mark.startswith(("pytest.mark.skip", "pytest.mark.xfail")) for mark in marks):
                found.add(node.name)
    return found


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists_and_runs(file, name):
    tests = run_tests(file)
    assert tests
    assert not name or any(test == name or test.startswith(name + "_") for test in tests), f"{file}::{name}"


def test_every_row_names_a_file_and_a_test():
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| seed", "| asks"))
    ]
    assert len(rows) > 35
    for row in rows:
        assert re.search(r"`test_\w+\.py", row), row
        for path in re.findall(
            r"`((?:serving|cache|metrics|workload|model|scenario|report|rng|rust)/[\w/.-]*)`", row
        ):
            base = ROOT if path.startswith("rust/") else ROOT / "python" / "kvcache_sim"
            assert (base / path).exists(), path
