"""Shrinking: the smallest case that still has the same finding."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vopr.finding import Finding, Kind

_T = TypeVar("_T")


def found(kind: Kind, case: Any) -> Finding | None:
    """Return the finding of a case, None without one."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            kind.run(case, Path(folder))
        except Finding as finding:
            return finding
    return None


def shortest(kind: Kind, case: Any, finding: Finding, limit_s: float = 60.0) -> tuple[Any, Finding]:
    """Return the smallest case found within a time that has the same finding, and its finding."""
    until_s = time.monotonic() + limit_s
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for other in kind.smaller(case):
            if time.monotonic() > until_s:
                return case, finding
            again = found(kind, other)
            if again is not None and again.key == finding.key:
                case, finding, is_smaller = other, again, True
                break
    return case, finding


def without_parts(items: Sequence[_T]) -> Iterator[list[_T]]:
    """Yield a sequence without its halves, quarters, eighths, down to single items (delta debugging)."""
    size = len(items)
    while size := size // 2:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
