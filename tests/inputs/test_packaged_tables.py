"""Packaged tables and digests as the standard library gives them: ``tomllib`` and ``hashlib`` are the oracles."""

import hashlib
import tomllib
from pathlib import Path

import kvcache_sim
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim._core import Sha256, toml_values
from support.product.models import read_entry

PACKAGE = Path(kvcache_sim.__file__).parent
FORMS = r"""
"a key".'dotted' = "tab\t, \u00e9, \"quoted\""
literal = 'C:\path'
lines = '''
two
lines'''
numbers = [1_000, 0xFF, 0o17, 0b101, 1e3, -0.0, 6.02_2e23, +inf]
z = { y.x = true, a = [[], {}] }

[b.c]
[[b.d]]
name = "first"
[b.d.e]
[[b.d]]
"""


def test_tables_are_read_as_by_the_standard_library_in_their_order():
    paths = (path for path in sorted(PACKAGE.rglob("*.toml")) if path.parent.name != "prices")  # dates
    texts = [path.read_text("utf-8") for path in paths]
    assert len(texts) > 100
    for text in [*texts, FORMS]:
        assert repr(toml_values(text)) == repr(tomllib.loads(text))


@pytest.mark.parametrize("text", ["a = 1\na = 2", "a = 2026-01-01", "a = 9223372036854775808", "["])
def test_what_is_no_table_of_numbers_and_texts_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        toml_values(text)


def test_a_changed_entry_is_the_callers_own():
    read_entry("gpus", "GPU", "h100").clear()
    assert read_entry("gpus", "GPU", "h100")


@given(st.lists(st.binary(max_size=200)))
def test_digests_of_pieces(pieces):
    mine, theirs = Sha256(b"first"), hashlib.sha256(b"first")
    for piece in pieces:
        mine.update(piece)
        theirs.update(piece)
        assert mine.hexdigest() == theirs.hexdigest()
    assert mine.digest() == theirs.digest()
