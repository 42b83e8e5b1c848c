"""The values of a log in JSON: lines, an array, documents over several lines, and pages of an array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.imports.source import json_line, lines_of
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource
    from kvcache_sim.workload.imports.kind import Reading


def documents_of(source: TraceSource, reading: Reading) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of each line of JSON, of each element of an array or a page, of each document.

    A bad line is refused, or counted if they are skipped; a bad document ends its file.
    """
    for number, value in _values(source, reading):
        page = value.get("data") if isinstance(value, dict) else None
        if isinstance(page, list):
            yield from ((number, element) for element in page)
        else:
            yield number, value


def _values(source: TraceSource, reading: Reading) -> Iterator[tuple[int, Any]]:
    if not _in_lines(source.head(1 << 16)):
        yield from objects(source)
        return
    for number, text in lines_of(source):
        try:
            yield number, json_line(number, text)
        except TraceProblem as bad:
            reading.skip(number, bad)


def _in_lines(head: bytes) -> bool:
    """Return True if a file has an object a line: neither an array nor printed over several lines."""
    line, *more = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)
    if not more:
        return not line.startswith(b"[")
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
