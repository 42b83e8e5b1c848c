"""Transforms that write a long trace while they read it, in memory by distinct blocks and sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from kvcache_sim._core import BlockSplit
from kvcache_sim.base.errors import TraceError
from kvcache_sim.workload.readers.stream import RowWindows
from kvcache_sim.workload.rows import PART_REFERENCES, parts
from kvcache_sim.workload.toolbox.transforms import check_divisor, check_times, copy_span_ns, split
from kvcache_sim.workload.toolbox.write import Part, part_lines
from kvcache_sim.workload.trace import NO_REQUEST, Trace


@dataclass
class Windowed:
    """A transformed trace, written once; ``requests`` counts what was, then ``warnings`` are known."""

    source: RowWindows
    block_size: int
    parts: Iterator[Part]
    requests: int = 0

    def named_parts(self) -> Iterator[Part]:
        """Yield the rows some at a time."""
        for part, ids in self.parts:
            self.requests += len(part)
            yield part, ids

    def lines(self) -> Iterator[str]:
        """Yield the rows as ``mooncake_lines``."""
        return (line for part, ids in self.named_parts() for line in part_lines(part, ids))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes of reading."""
        return self.source.warnings


def converted(windows: RowWindows) -> Windowed:
    """Return the trace as it is."""
    return Windowed(windows, windows.block_size, ((part, windows.names(part)) for part in windows))


def rechunked(windows: RowWindows, block_size: int) -> Windowed:
    """Return the trace as ``transforms.rechunk``."""
    check_divisor(windows.block_size, block_size)

    def changed() -> Iterator[Part]:
        blocks = BlockSplit(windows.block_size, block_size)
        references = PART_REFERENCES * block_size // windows.block_size
        for window in windows:
            for part in parts(window, max(1, references)):
                out = split(part, blocks, block_size)
                yield out, out.block_ids

    return Windowed(windows, block_size, changed())


def repeated(
    windows: RowWindows, again: Callable[[], Trace | RowWindows], times: int, gap_ns: int
) -> Windowed:
    """Return the trace as ``transforms.repeat``; ``again`` opens it for one copy after another."""
    check_times(times)

    def copies() -> Iterator[Part]:
        for part in windows:
            yield _copy(part, 0, 0, windows)
        span = copy_span_ns(windows.last_ns, gap_ns, times)
        for k in range(1, times):
            copy = again()
            for part in copy if isinstance(copy, RowWindows) else ():
                yield _copy(part, k, span, windows)
            if isinstance(copy, Trace) or copy.requests != windows.requests:
                raise TraceError("the file changed while it was repeated", where=windows.source)

    return Windowed(windows, windows.block_size, copies())


def _copy(part: Trace, k: int, span_ns: int, whole: RowWindows) -> Part:
    """Return copy ``k`` of rows of a trace that was read whole, if k is not 0."""
    names = {s: f"{k}:{part.session_names[s]}" for s in np.unique(part.session).tolist() if s >= 0}
    first = k * whole.requests if k else 0
    after = np.where(part.after == NO_REQUEST, NO_REQUEST, part.after + first).astype(np.int32)
    moved = replace(part, arrival_ns=part.arrival_ns + k * span_ns, after=after)
    ids = part.block_ids.astype(np.uint64)
    return _named(moved, names), ids + np.uint64(k * whole.distinct_ids if k else 0)


def _named(part: Trace, names: dict[int, str]) -> Trace:
    """Return rows with sessions numbered among themselves."""
    numbers = {session: number for number, session in enumerate(names)}
    session = np.array([numbers.get(s, s) for s in part.session.tolist()], np.int32)
    return replace(part, session=session, session_names=list(names.values()))
