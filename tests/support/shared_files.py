"""Paths of the tests' traces, oracles and figures: next to the checkout, or vendored.

``tests/data`` holds real engines' integers and the input they were made from, so that a clone alone meets
them; some of it compressed. What is too large lies in ``../shared`` only, and its tests are skipped without.
"""

import lzma
import tempfile
from functools import cache
from pathlib import Path

import pytest

from support.packed_trace import unpack

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def shared(name: str) -> Path:
    """Return the path of a shared file or of its vendored copy; skip the test, saying so, where both are absent."""
    path = ROOT.parent / "shared" / name
    if path.exists():
        return path
    copy = vendored(name)
    if copy is None:
        pytest.skip(f"shared file absent: ../shared/{name}")
    return copy


def vendored(name: str) -> Path | None:
    """Return the path of a vendored file, decompressed if it must be; None where it is not vendored whole."""
    path = DATA / name
    if path.exists():
        return path
    for suffix, decompress in ((".xz", lzma.decompress), (".packed", unpack)):
        packed = path.with_name(path.name + suffix)
        if packed.exists():
            target = Path(_unpacked().name) / path.name
            if not target.exists():
                target.write_bytes(decompress(packed.read_bytes()))
            return target
    return None


@cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kvsim-tests-")
