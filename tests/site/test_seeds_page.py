"""docs/seeds.md and docs/invariants.md name tests that exist and run: pytest collects each of them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "seeds.md").read_text()
INVARIANTS = (ROOT / "docs" / "invariants.md").read_text()
NAMED = sorted(set(re.findall(r"`(\w+/test_\w+\.py)(?:::([^`]+))?`", PAGE + INVARIANTS)))
#: Marks that keep a test from running, or from failing.
KEPT_FROM_RUNNING = ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")


def collected_from(source: str) -> dict[str, list[ast.expr]]:
    """Return the tests of a file as pytest collects them, each with the decorators that apply to it.

    They are functions of the module, ``name``, and methods of classes, ``Class::name``; a function inside
    another one is no test.
    """
    found: dict[str, list[ast.expr]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found[node.name] = node.decorator_list
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name.startswith("test_"):
                    found[f"{node.name}::{method.name}"] = [*node.decorator_list, *method.decorator_list]
    return found


def machines_of(source: str) -> set[str]:
    """Return the state machines that a file binds to a test: ``TestStore = Store.TestCase``."""
    return {
        target.id
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase")
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.startswith("Test")
    }


def runs(decorators: list[ast.expr]) -> bool:
    """Return whether a test with these decorators runs wherever its files are, and may fail."""
    return not any(ast.unparse(decorator).split("(")[0] in KEPT_FROM_RUNNING for decorator in decorators)


def cases(decorators: list[ast.expr]) -> set[str] | None:
    """Return the names of a parametrised test's cases as far as they can be read; None without any.

    Strings are their own names; ``id=`` and ``ids=[...]`` give others. Cases of several parameters, or
    computed ones, cannot be read and give no name.
    """
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
            ids = next((k.value for k in decorator.keywords if k.arg == "ids"), decorator.args[1])
            names = set()
            for element in getattr(ids, "elts", []):
                if isinstance(element, ast.Call):
                    element = next((k.value for k in element.keywords if k.arg == "id"), element.args[0])
                if isinstance(element, ast.Constant):
                    names.add(str(element.value))
            return names
    return None


def problem(file: str, name: str) -> str | None:
    """Return what is wrong with a test that the page names; None where it is one and runs."""
    path = ROOT / "tests" / file
    if not path.exists():
        return "no such file"
    source = path.read_text()
    tests = collected_from(source)
    if not name:
        return None if any(map(runs, tests.values())) or machines_of(source) else "no test in it runs"
    plain, _, case = name.partition("[")
    if plain not in tests:
        return None if plain in machines_of(source) else "no such test"
    if not runs(tests[plain]):
        return "it is kept from running"
    if case and case.rstrip("]") not in (cases(tests[plain]) or ()):
        return "no such case"
    return None


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists_and_runs(file, name):
    assert problem(file, name) is None, f"{file}::{name}"


def test_every_row_names_a_file_and_a_test():
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| seed", "| asks"))
    ]
    assert len(rows) > 35
    for row in rows:
        assert re.search(r"`\w+/test_\w+\.py", row), row
        for path in re.findall(
            r"(?<!/)`((?:serving|cache|metrics|workload|model|scenario|report|base|extras|rust)/[\w/.-]*)`",
            row.rpartition(" | ")[0],
        ):
            base = ROOT if path.startswith("rust/") else ROOT / "python" / "kvcache_sim"
            assert (base / path).exists(), path


def test_every_invariant_has_its_number_its_code_and_its_test():
    rows = [line.split(" | ") for line in INVARIANTS.splitlines() if line.startswith("| I")]
    assert [row[0].strip("| ") for row in rows] == [f"I{number}" for number in range(1, 13)]
    for _, _, _, held_by in rows:
        assert re.search(r"`\w+/test_\w+\.py", held_by), held_by
