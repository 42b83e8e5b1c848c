"""The event log: rows of ``events`` as they come, packed into integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import EVENT_COLUMNS, EVENT_KINDS, OUTCOMES
from kvcache_sim.metrics.parts import Parts
from kvcache_sim.metrics.run import CodedText, ColumnData

_ROW = Struct(f"{len(EVENT_COLUMNS)}q")
#: Rows that become columns at a time.
_PART_ROWS = 1 << 15


class TextCoder:
    """Gives each distinct text a code, in order of first appearance after those named ``first``."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self.words: dict[str, int] = {word: code for code, word in enumerate(first)}

    def code(self, word: str) -> int:
        """Return the text's code."""
        return self.words.setdefault(word, len(self.words))


class EventLog:
    """Keeps events in order of logging. Cost: 72 bytes an event."""

    def __init__(self) -> None:
        # The codes that the core packs: kinds by their place in the table, outcomes likewise, then no detail.
        self._kinds, self._details = TextCoder(EVENT_KINDS), TextCoder((*OUTCOMES, ""))
        self._rows = bytearray()

    def extend(self, packed: bytes) -> None:
        """Add rows that the core has packed."""
        self._rows += packed

    def add(self, kind: str, detail: str, row: tuple[int, int, int, int, int, int, int]) -> None:
        """Add ``row`` = (time, duration, machine, request, tokens, blocks, tokens left to prefill)."""
        kinds, details = self._kinds.words, self._details.words
        kind_code, detail_code = kinds.setdefault(kind, len(kinds)), details.setdefault(detail, len(details))
        time_ns, duration_ns, machine, request, tokens, blocks, left = row
        self._rows += _ROW.pack(
            time_ns, duration_ns, machine, kind_code, request, detail_code, tokens, blocks, left
        )

    def columns(self) -> Parts:
        """Return the columns of ``events`` in time order (ties as they were logged)."""
        return Parts(tuple(EVENT_COLUMNS), self._parts)

    def _parts(self) -> Iterator[dict[str, ColumnData]]:
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, len(EVENT_COLUMNS))
        times = rows[:, 0]
        in_order = bool((times[1:] >= times[:-1]).all())
        order = None if in_order else np.argsort(times, kind="stable")
        for start in range(0, max(len(rows), 1), _PART_ROWS):
            stop = start + _PART_ROWS
            yield self._columns(rows[start:stop] if order is None else rows[order[start:stop]])

    def _columns(self, rows: NDArray[np.int64]) -> dict[str, ColumnData]:
        columns: dict[str, ColumnData] = {}
        for position, (name, column) in enumerate(EVENT_COLUMNS.items()):
            if column.dtype == "str":
                coder = self._kinds if name == "kind" else self._details
                columns[name] = CodedText(rows[:, position].astype(np.int32), tuple(coder.words))
            else:
                columns[name] = rows[:, position].astype(column.dtype)
        return columns
