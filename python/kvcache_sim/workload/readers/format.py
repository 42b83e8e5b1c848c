"""What a trace format is: a name, how to know it, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvcache_sim.values import Value

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceRows, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


class TraceFormat(Value):
    """One published format; ``read`` takes an opened source, ``detect`` its first bytes."""

    name: str
    help: str
    #: Whether the first (decompressed) bytes of a file are of this format.
    detect: Callable[[bytes], bool]
    #: Reads the source at ``settings.block_size`` tokens an id (None: the format's own).
    read: Callable[[TraceSource, ReadSettings], RawColumns]
    #: The format's own block size.
    block_size: int = 512
    #: Tokens of an id from a file's first bytes, where these or the settings tell; None: the format's own.
    tell_block: Callable[[bytes, ReadSettings], int] | None = None
    #: Opens the source to read its rows some at a time; None where the format cannot.
    rows: Callable[[TraceSource, ReadSettings], TraceRows] | None = None

    def block_of(self, head: bytes, settings: ReadSettings) -> int:
        """Return the tokens of an id of a file that begins with ``head``; raises as the reading does."""
        if settings.block_size is not None:
            return settings.block_size
        return self.block_size if self.tell_block is None else self.tell_block(head, settings)


def first_row(head: bytes) -> dict[str, Any] | None:
    """Return the members of a file's first line of JSON, cut ones by name alone; None if it is no object."""
    import json

    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return _names(line)
    return row if isinstance(row, dict) else None


def _names(line: bytes) -> dict[str, Any]:
    """Return the quoted words before colons of a line that is no whole JSON, without values."""
    import re

    return {m.decode(): None for m in re.findall(rb'"([A-Za-z_ ]{1,40})"\s*:', line)}


def header(head: bytes) -> list[str]:
    """Return the column names of a CSV file's first line."""
    line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
    return [name.strip().strip('"') for name in line.decode("utf-8", "replace").split(",")]
