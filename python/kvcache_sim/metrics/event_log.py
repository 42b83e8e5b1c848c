"""The event log: rows of ``events``, packed into integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import InvariantError
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.metrics.columns import EVENT_COLUMNS, EVENT_KINDS, OUTCOMES
from kvcache_sim.metrics.parts import GROUP_ROWS, Part, Parts
from kvcache_sim.metrics.prefix_cache import outcomes_of
from kvcache_sim.metrics.run import CodedText, ColumnData

_ROW = Struct(f"{len(EVENT_COLUMNS)}q")


class EventRow(NamedTuple):
    """The numbers of an event; ``request`` is -1 for one of a machine."""

    time_ns: int
    duration_ns: int
    machine: int
    request: int
    tokens: int = 0
    blocks: int = 0
    prefill_tokens_left: int = 0


class TextCoder:
    """Assigns a code to each distinct text, in order of first appearance after the texts of ``first``."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self.words: dict[str, int] = {word: code for code, word in enumerate(first)}

    def code(self, word: str) -> int:
        """Return the text's code."""
        return self.words.setdefault(word, len(self.words))


class EventLog:
    """Keeps events in order of logging. Cost: 72 bytes per event until it is handed over."""

    def __init__(self) -> None:
        # The core's codes: kinds and outcomes by their index in the table, then no detail, then edges from
        # each source to each other.
        edges = [f"{source}->{target}" for source in KV_SOURCES for target in KV_SOURCES]
        self._kinds, self._details = TextCoder(EVENT_KINDS), TextCoder((*OUTCOMES, "", *edges))
        self._rows = bytearray()
        self._take: Callable[[Part], None] | None = None
        #: All later rows are at this time or after; and the same when rows were last handed over.
        self._sure_ns = self._left_until_ns = 0
        #: Counts of each outcome among the rows that were handed over.
        self.left_outcomes: dict[str, int] = {}

    def leave_to(self, take: Callable[[Part], None]) -> None:
        """Hand rows to ``take`` during the run, about a group at a time."""
        self._take = take

    def extend(self, packed: bytes, now_ns: int) -> None:
        """Add rows that the core has packed, at ``now_ns`` or, of a machine with lookahead, later."""
        self._rows += packed
        self._sure_ns = now_ns
        if self._take is not None and len(self._rows) >= GROUP_ROWS * _ROW.size:
            self._leave(self._take)

    def add(self, kind: str, detail: str, row: EventRow) -> None:
        """Add an event of a kind; ``detail`` is its outcome, tier or edge."""
        kinds, details = self._kinds.words, self._details.words
        kind_code, detail_code = kinds.setdefault(kind, len(kinds)), details.setdefault(detail, len(details))
        self._sure_ns = max(self._sure_ns, row.time_ns)
        self._rows += _ROW.pack(*row[:3], kind_code, row.request, detail_code, *row[4:])
        if self._take is not None and len(self._rows) >= GROUP_ROWS * _ROW.size:
            self._leave(self._take)

    def _leave(self, take: Callable[[Part], None]) -> None:
        """Hand over the rows that no later row precedes; InvariantError if a row arrives too late."""
        rows = self._sorted()
        if int(rows[0, 0]) < self._left_until_ns:
            raise InvariantError("I5: an event before one that was written", got=f"{rows[0, 0]} ns")
        self._left_until_ns = self._sure_ns
        count = int(np.searchsorted(rows[:, 0], self._sure_ns))
        for part in self._parts_of(rows[:count]) if count else ():
            for name, times in outcomes_of(part).items():
                self.left_outcomes[name] = self.left_outcomes.get(name, 0) + times
            take(part)
        self._rows = bytearray(rows[count:].tobytes())

    def columns(self) -> Parts:
        """Return the columns of ``events`` in time order (ties by machine, then in order of logging)."""
        return Parts(tuple(EVENT_COLUMNS), self._parts)

    def _sorted(self) -> NDArray[np.int64]:
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, len(EVENT_COLUMNS))
        time_ns, machine = rows[:, 0], rows[:, 2]
        later, further = np.diff(time_ns), np.diff(machine)
        if bool(((later > 0) | ((later == 0) & (further >= 0))).all()):
            return rows
        return rows[np.lexsort((machine, time_ns))]

    def _parts(self) -> Iterator[dict[str, ColumnData]]:
        return self._parts_of(self._sorted())

    def _parts_of(self, rows: NDArray[np.int64]) -> Iterator[dict[str, ColumnData]]:
        for start in range(0, max(len(rows), 1), GROUP_ROWS):
            yield self._columns(rows[start : start + GROUP_ROWS])

    def _columns(self, rows: NDArray[np.int64]) -> dict[str, ColumnData]:
        columns: dict[str, ColumnData] = {}
        for position, (name, column) in enumerate(EVENT_COLUMNS.items()):
            if column.dtype == "str":
                coder = self._kinds if name == "kind" else self._details
                columns[name] = CodedText(rows[:, position].astype(np.int32), tuple(coder.words))
            else:
                columns[name] = rows[:, position].astype(column.dtype)
        return columns
