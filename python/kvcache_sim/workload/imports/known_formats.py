"""Formats that are known and not read: ``known_formats.toml`` has a row for each.

A row has the signs in a file's first bytes, the name, what the format lacks, and what to do.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim._core import toml_values
from kvcache_sim.base.errors import TraceError
from kvcache_sim.base.values import Value

_FORMATS = Path(__file__).with_name("known_formats.toml")
_MEMBER = re.compile(rb'"([^"\\\n]{1,60})"\s*:')


class KnownFormat(Value):
    """A format that is not read: all of its signs are in a file's first bytes."""

    name: str
    #: What it lacks, or that it is not read yet.
    lacks: str
    do: str
    #: The first bytes (one of them), bytes somewhere, names of members of JSON, a regular expression.
    starts: tuple[bytes, ...] = ()
    holds: tuple[bytes, ...] = ()
    members: frozenset[bytes] = frozenset()
    matches: bytes = b""

    def fits(self, head: bytes, members: set[bytes]) -> bool:
        """Return True if the first bytes of a file, without blanks before them, have every sign."""
        return (
            (not self.starts or head.startswith(self.starts))
            and all(sign in head for sign in self.holds)
            and self.members <= members
            and (not self.matches or re.search(self.matches, head, re.MULTILINE) is not None)
        )


@cache
def known_formats() -> tuple[KnownFormat, ...]:
    """Return the formats that are known and not read, in the order of detection."""
    rows: list[dict[str, Any]] = toml_values(_FORMATS.read_text(encoding="utf-8"))["format"]

    def signs(row: dict[str, Any], name: str) -> tuple[bytes, ...]:
        return tuple(sign.encode("latin-1") for sign in row.get(name, ()))

    return tuple(
        KnownFormat(
            row["name"],
            row["lacks"],
            row["do"],
            signs(row, "starts"),
            signs(row, "holds"),
            frozenset(signs(row, "members")),
            row.get("matches", "").encode("latin-1"),
        )
        for row in rows
    )


def known_format(head: bytes) -> KnownFormat | None:
    """Return the first known format that fits a file's first bytes, None if there is none."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    members = set(_MEMBER.findall(text)) if text.startswith((b"{", b"[")) else set()
    return next((known for known in known_formats() if known.fits(text, members)), None)


def refuse_known(head: bytes, where: str) -> None:
    """Raise the TraceError of a known format that is not read; return if the file is of no such format."""
    known = known_format(head)
    if known is not None:
        raise TraceError(f"{known.name}: {known.lacks}", where=where, hint=known.do)
