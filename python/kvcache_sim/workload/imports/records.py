"""The records of a log of JSON: one a line, the elements of an array, or as TraceLab prints them.

TraceLab's examples have each record over several lines, below one such as ``===== record 0001 =====``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kvcache_sim.workload.imports.kind import Reading, each_line
from kvcache_sim.workload.imports.source import json_line, lines_of
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_BETWEEN = re.compile(r"={5} \w+ \d+\b.*={5}\s*")
_Found = TypeVar("_Found")


def each_record(
    source: TraceSource, reading: Reading, take: Callable[[int, Any], _Found | None]
) -> Iterator[tuple[int, _Found]]:
    """Yield the result of ``take`` for each record; a bad one is refused, or counted if they are skipped."""

    def parsed(number: int, record: Any) -> _Found | None:
        return take(number, json_line(number, record) if isinstance(record, str) else record)

    is_array = source.head(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    return each_line(source, reading, parsed, objects if is_array else _texts)


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
