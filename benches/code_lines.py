"""Lines of code by package, without blank lines, comments and docstrings: ``make size``.

    python benches/code_lines.py [ROOT]

Counts ``python/``, ``rust/`` (its own tests and benchmarks are a row of each crate), and ``tests/`` in all.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: A Rust comment, or a text in which comment signs have no meaning.
_RUST = re.compile(r'//[^\n]*|/\*.*?\*/|r#*".*?"#*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\\\'])\'', re.DOTALL)
#: Tokens that are not code by themselves.
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def python_lines(source: str) -> int:
    """Return the lines of a Python module that contain code; docstrings do not count."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                assert first.end_lineno is not None
                lines.difference_update(range(first.lineno, first.end_lineno + 1))
    return len(lines)


def rust_lines(source: str) -> int:
    """Return the lines of a Rust file that contain code."""

    def without_comment(found: re.Match[str]) -> str:
        text = found.group()
        return "\n" * text.count("\n") if text.startswith("/") else text

    return sum(bool(line.strip()) for line in _RUST.sub(without_comment, source).splitlines())


def is_test(path: Path) -> bool:
    """Return True if a Rust file is a test module of its crate."""
    return "tests" in path.parts or path.stem == "tests" or path.stem.endswith("_tests")


def counted(root: Path) -> dict[str, Counter[str]]:
    """Return the lines of code by language and package."""
    found = {"Python": Counter[str](), "Rust": Counter[str]()}
    for path in sorted((root / "python").rglob("*.py")):
        inside = path.relative_to(root / "python")
        package = inside.parts[1] if len(inside.parts) > 2 else inside.parts[0]
        found["Python"][package] += python_lines(path.read_text())
    for path in sorted((root / "rust").rglob("*.rs")):
        crate, *inside = path.relative_to(root / "rust").parts
        package = inside[1] if len(inside) > 2 else "(root)"
        name = f"{crate}/{'(tests, benches)' if is_test(path) or inside[0] != 'src' else package}"
        found["Rust"][name] += rust_lines(path.read_text())
    return found


def main() -> int:
    """Print the table; return the exit code."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for language, packages in counted(root).items():
        for package, lines in sorted(packages.items()):
            print(f"{language:<8}{package:<24}{lines:>8,}")
        print(f"{language:<8}{'in all':<24}{packages.total():>8,}\n")
    tests = sorted((root / "tests").rglob("*.py"))
    print(f"{'tests':<32}{sum(python_lines(path.read_text()) for path in tests):>8,}")
    print(f"{'tests, lines in all':<32}{sum(path.read_text().count(chr(10)) for path in tests):>8,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
