"""The event log: rows of ``events`` as they come, packed into integers in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import EVENT_COLUMNS
from kvcache_sim.metrics.run import CodedText, ColumnData

_FLUSH_ROWS = 4096


class TextCoder:
    """Gives each distinct text a code, in order of first appearance."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def code(self, word: str) -> int:
        """Return the text's code."""
        return self.words.setdefault(word, len(self.words))


class EventLog:
    """Keeps events in order of logging. Cost: 72 bytes an event."""

    def __init__(self) -> None:
        self._kinds, self._details = TextCoder(), TextCoder()
        self._rows: list[tuple[int, ...]] = []
        self._blocks: list[NDArray[np.int64]] = []

    def add(
        self,
        kind: str,
        detail: str,
        span_ns: tuple[int, int],
        where: tuple[int, int],
        sizes: tuple[int, int, int],
    ) -> None:
        """Add a row: ``span_ns`` = (time, duration), ``where`` = (machine, request), ``sizes`` = (tokens,
        blocks, tokens left to prefill)."""
        kinds, details = self._kinds, self._details
        row = (*span_ns, where[0], kinds.code(kind), where[1], details.code(detail), *sizes)
        self._rows.append(row)
        if len(self._rows) == _FLUSH_ROWS:
            self._flush()

    def columns(self) -> dict[str, ColumnData]:
        """Return the columns of ``events`` in time order (ties as they were logged)."""
        self._flush()
        rows = np.concatenate([np.empty((0, len(EVENT_COLUMNS)), np.int64), *self._blocks])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        columns: dict[str, ColumnData] = {}
        for position, (name, column) in enumerate(EVENT_COLUMNS.items()):
            if column.dtype == "str":
                coder = self._kinds if name == "kind" else self._details
                columns[name] = CodedText(rows[:, position].astype(np.int32), tuple(coder.words))
            else:
                columns[name] = rows[:, position].astype(column.dtype)
        return columns

    def _flush(self) -> None:
        if self._rows:
            self._blocks.append(np.array(self._rows, np.int64))
            self._rows.clear()
