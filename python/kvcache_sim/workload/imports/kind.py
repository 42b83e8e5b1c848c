"""Interface of a kind of log: name, detection and reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.imports.naming import Imported, Logged, Naming, Notes
from kvcache_sim.workload.imports.source import lines_of
from kvcache_sim.workload.imports.turns import Turn

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource


#: (line, request) of each request, in any order; ``write`` names the blocks of those with texts or tokens,
#: and makes requests of the turns of conversations.
Requests = Iterator[tuple[int, Imported | Logged | Turn]]
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings of reading a log: block naming, and the receiver of notes; ``skips``: bad rows are counted.

    ``answer_tokens``: tokens of an answer whose length the log does not say; None leaves its request out.
    """

    naming: Naming
    notes: Notes
    skips: bool = False
    answer_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LogKind:
    """One kind of log; ``read`` raises TraceProblem for a line of another kind."""

    name: str
    help: str
    #: True if the first (decompressed) bytes of a file are of this kind.
    detect: Callable[[bytes], bool]
    read: Callable[[TraceSource, Reading], Requests]


def each_line(
    source: TraceSource,
    reading: Reading,
    take: Callable[[int, Any], _Found | None],
    lines: Callable[[TraceSource], Iterator[tuple[int, Any]]] = lines_of,
) -> Iterator[tuple[int, _Found]]:
    """Yield the result of ``take`` for each line; a bad line is refused, or counted if they are skipped."""
    for number, text in lines(source):
        try:
            found = take(number, text)
        except TraceProblem as bad:
            if not reading.skips:
                raise
            reading.notes.leave_out(number, f"a bad row: {bad.args[3]}")
            continue
        if found is not None:
            yield number, found
