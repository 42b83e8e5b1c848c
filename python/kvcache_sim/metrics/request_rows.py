"""Rows of ``requests``: packed as requests are closed, handed over in file order, a group at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.metrics.columns import REQUEST_COLUMNS
from kvcache_sim.metrics.parts import GROUP_ROWS, Part, joined
from kvcache_sim.metrics.run import ColumnData

_NAMES = tuple(REQUEST_COLUMNS)
_WIDTH = len(_NAMES)
#: Bytes of rows that are sorted into their groups at a time: as many as the core hands over.
_FLUSH_BYTES, _WATCHED_BYTES = 1024 * 8 * _WIDTH, 64 * 8 * _WIDTH


class RequestRows:
    """Receives each row once, in any order; hands over a group once it and all before are complete.

    Cost: 8 bytes per value of the incomplete groups, from the first open request on.
    """

    def __init__(self, take: Callable[[Part], None]) -> None:
        self._take = take
        self._packed = bytearray()
        #: Groups from ``_first`` on, by column and row, and the number of rows received of each.
        self._groups: deque[NDArray[np.int64]] = deque()
        self._counts: deque[int] = deque()
        self._first = 0
        #: Observer of rows before they are in their groups, and the bytes of a batch.
        self._watch: Callable[[Part], None] | None = None
        self._flush_bytes = _FLUSH_BYTES
        #: First arrivals of requests that started again elsewhere.
        self.first_arrivals: dict[int, int] = {}
        #: Prompt tokens of finished requests, and cached tokens by source.
        self._prompt_tokens, self._cached_tokens = 0, [0] * len(KV_SOURCES)

    def leave_to(self, take: Callable[[Part], None]) -> None:
        """Stream groups to ``take``; no row has been added."""
        self._take = take

    def watch(self, take: Callable[[Part], None]) -> None:
        """Hand rows to ``take`` in small batches, in any order."""
        self._watch, self._flush_bytes = take, _WATCHED_BYTES

    def add(self, packed: bytes) -> None:
        """Add rows of 64-bit integers in the order of ``REQUEST_COLUMNS``."""
        if not self._packed and len(packed) >= self._flush_bytes:
            self._sort(packed)
            return
        self._packed += packed
        if len(self._packed) >= self._flush_bytes:
            self._flush()

    def hit_shares(self) -> dict[str, float]:
        """Return by source the cached share of the finished requests' prompt tokens so far."""
        self._flush()
        tokens = max(self._prompt_tokens, 1)
        return {row: n / tokens for row, n in zip(KV_SOURCES, self._cached_tokens, strict=True)}

    def end(self) -> None:
        """Hand over the last group; all its rows are complete."""
        self._flush()
        while self._groups:
            self._hand_on(self._counts[0])

    def _flush(self) -> None:
        packed, self._packed = self._packed, bytearray()
        if packed:
            self._sort(packed)

    def _sort(self, packed: bytes | bytearray) -> None:
        """Put rows into their groups, and hand over complete groups."""
        rows = np.frombuffer(packed, np.int64).reshape(-1, _WIDTH)
        if self.first_arrivals:
            rows = self._from_first_arrivals(rows)
        if self._watch is not None:
            self._watch({name: rows[:, at] for at, name in enumerate(_NAMES)})
        self._count_hits(rows)
        size = GROUP_ROWS
        number, row = np.divmod(rows[:, 0], size)
        number -= self._first
        first, last = int(number.min()), int(number.max())
        for group in range(first, last + 1):
            chosen = number == group if first < last else slice(None)
            while group >= len(self._groups):
                self._groups.append(np.zeros((_WIDTH, size), np.int64))  # touched when rows are added
                self._counts.append(0)
            rows_of = row[chosen]
            self._groups[group][:, rows_of] = rows[chosen].T
            self._counts[group] += len(rows_of)
        while self._counts and self._counts[0] == size:
            self._hand_on(size)

    def _from_first_arrivals(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        found = [at for at, request in enumerate(rows[:, 0].tolist()) if request in self.first_arrivals]
        if not found:
            return rows
        rows = rows.copy()
        for at in found:
            first = self.first_arrivals.pop(int(rows[at, 0]))
            if rows[at, _FINISH] >= 0:
                rows[at, _QUEUE] += rows[at, _ARRIVAL] - first
            rows[at, _ARRIVAL] = first
        return rows

    def _count_hits(self, rows: NDArray[np.int64]) -> None:
        finished = rows[rows[:, _FINISH] >= 0]
        self._prompt_tokens += int(finished[:, _INPUT].sum())
        for row, column in enumerate(_CACHED):
            self._cached_tokens[row] += int(finished[:, column].sum())

    def _hand_on(self, count: int) -> None:
        columns = self._groups.popleft()[:, :count]
        self._counts.popleft()
        self._first += 1
        described = REQUEST_COLUMNS.items()
        named = zip(described, columns, strict=True)
        self._take({name: values.astype(column.dtype, copy=False) for (name, column), values in named})


_ARRIVAL, _QUEUE = _NAMES.index("arrival_ns"), _NAMES.index("queue_ns")
_FINISH, _INPUT = _NAMES.index("finish_ns"), _NAMES.index("input_tokens")
_CACHED = [_NAMES.index(f"cached_{row}_tokens") for row in KV_SOURCES]


class KeptRows:
    """Columns of rows that stay in memory until the end of the run."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[ColumnData]] = {name: [] for name in REQUEST_COLUMNS}

    def add(self, part: Part) -> None:
        """Add rows, as copies: their columns may be parts of one array."""
        for name, pieces in self._pieces.items():
            pieces.append(copy(part[name]))

    def columns(self) -> dict[str, ColumnData]:
        """Return the columns of all rows. Cost: one column at a time is in memory twice."""
        for name, pieces in self._pieces.items():
            if len(pieces) != 1:
                none = np.zeros(0, REQUEST_COLUMNS[name].dtype)
                self._pieces[name] = [joined(pieces) if pieces else none]
        return {name: pieces[0] for name, pieces in self._pieces.items()}
