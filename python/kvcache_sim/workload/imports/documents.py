"""The values of a log in JSON: lines, an array, whole documents, pages of an array, and TraceLab's records.

TraceLab's examples have each record over several lines, below one such as ``===== record 0001 =====``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.imports.kind import Reading, each_line
from kvcache_sim.workload.imports.source import json_line, lines_of
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_BETWEEN = re.compile(r"={5} \w+ \d+\b.*={5}\s*")
_Found = TypeVar("_Found")


def each_document(
    source: TraceSource, reading: Reading, take: Callable[[int, Any], _Found | None]
) -> Iterator[tuple[int, _Found]]:
    """Yield the result of ``take`` for each line of JSON, element of an array or a page, or document.

    A bad line or value is refused, or counted if they are skipped; a bad document ends its file.
    """
    return each_line(source, reading, take, lambda source: _values(source, reading))


def _values(source: TraceSource, reading: Reading) -> Iterator[tuple[int, Any]]:
    for number, value in _documents(source, reading):
        page = value.get("data") if isinstance(value, dict) else None
        if isinstance(page, list):
            yield from ((number, element) for element in page)
        else:
            yield number, value


def _documents(source: TraceSource, reading: Reading) -> Iterator[tuple[int, Any]]:
    if not _in_lines(source.head(1 << 16)):
        yield from objects(source)
        return
    for number, text in _texts(source):
        try:
            yield number, json_line(number, text)
        except TraceProblem as bad:
            reading.skip(number, bad)


def _in_lines(head: bytes) -> bool:
    """Return True if a file has an object a line: neither an array nor printed over several lines."""
    line, *more = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)
    if not more or line.startswith((b"#", b"=")):
        return not line.startswith(b"[")
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _texts(source: TraceSource) -> Iterator[tuple[int, str]]:
    """Yield each line, or the lines of each record; notes before the first record are no part of one."""
    first, lines = 0, list[str]()
    for number, text in lines_of(source):
        if _BETWEEN.fullmatch(text):
            if first and lines:
                yield first, "\n".join(lines)
            first, lines = number + 1, []
        elif first or text.startswith("#"):
            lines.append(text)
        else:
            yield number, text
    if first and lines:
        yield first, "\n".join(lines)
