"""Rules of the code base: files of one idea, and packages whose docstring describes each of their files."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "kvcache_sim"
SOURCES = [*PACKAGE.rglob("*.py"), *(ROOT / "rust").rglob("src/**/*.rs")]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_LINES = 400
MOST_COLUMNS = 120  # of a test, by hand: the formatter leaves strings as they are


def test_no_file_is_longer_than_a_person_reads_at_once():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in [*SOURCES, *TESTS]}
    assert len(lengths) > 1_000
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def modules(package: Path) -> list[str]:
    """Return the names of a package's modules and packages."""
    return [
        path.stem
        for path in sorted(package.iterdir())
        if (path.suffix == ".py" and path.stem not in ("__init__", "__main__"))
        or (path / "__init__.py").exists()
    ]


@pytest.mark.parametrize(
    "package", sorted(p.parent for p in PACKAGE.rglob("__init__.py")), ids=lambda p: p.name
)
def test_a_package_names_each_of_its_files(package: Path):
    text = (package / "__init__.py").read_text()
    assert (ast.get_docstring(ast.parse(text)) or "").strip()
    missing = [name for name in modules(package) if not re.search(rf"\b{name}\b", text)]
    assert missing == [], f"{package.relative_to(ROOT)}/__init__.py does not say what lies there"


def test_no_test_module_imports_another():
    pattern = re.compile(r"^\s*(?:from|import) test_\w+", re.MULTILINE)
    importing = [path.name for path in TESTS if pattern.search(path.read_text())]
    assert importing == [], "what tests share stands in tests/support"


def test_tests_have_the_formatter_s_form_and_lines_that_fit_a_screen():
    long, skipped = set(), set()
    for path in TESTS:
        text = path.read_text()
        long |= {path.name for line in text.splitlines() if len(line) > MOST_COLUMNS}
        if re.search(r"# *fmt: *(?:skip|off)", text) and not path.name.startswith("seed_"):
            skipped.add(path.name)
    assert (long, skipped) == (set(), set()), "examples of the seeds alone stand word for word"
