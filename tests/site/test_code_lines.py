"""The count of code lines leaves out blank lines, comments and docstrings, and nothing else."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))

from code_lines import is_test, python_lines, rust_lines

PYTHON = '''"""A module.

Two lines of it.
"""

# a comment
TEXT = """a text
that is code"""


def double(x: int) -> int:  # counted
    """Return twice x."""
    return (
        # why
        2 * x
    )
'''

RUST = """//! A module.

/// Doubles.
fn double(x: u32) -> u32 { // counted
    /* a comment
       of two lines */ let signs = "// text";
    let quote = '"'; // why
    let raw = r#"/* text */"#;
    2 * x
}
"""


def test_lines_of_both_languages_by_hand():
    assert python_lines(PYTHON) == 2 + 1 + 3
    assert rust_lines(RUST) == 1 + 1 + 1 + 1 + 1 + 1


def test_test_modules_are_recognized_by_their_names():
    assert is_test(Path("core/src/store/tests/model.rs"))
    assert is_test(Path("core/src/transfers/hop_tests.rs"))
    assert not is_test(Path("core/src/store/lease.rs"))
