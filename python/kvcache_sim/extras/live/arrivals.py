"""The log of a live run: each arrival as the event loop received it, as a trace for ``kvsim simulate``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.tables import TableFile
from kvcache_sim.serving.sequence import ClosedRequest
from kvcache_sim.workload.toolbox.write import ms

#: lag.parquet: one row per request, in order of arrival.
LAG_COLUMNS = {
    "request": Column("int32", "index in the trace, from 0"),
    "first_token_lag_ns": Column("int64", "wall-clock time from its first token to its write, -1: none"),
    "worst_token_lag_ns": Column("int64", "the longest such time of its tokens"),
}
_GROUP = 512


@dataclass(slots=True)
class _Row:
    """A row that waits for earlier rows."""

    text: str
    ticket: Ticket
    abort_after_ns: int = -1
    closed: bool = False


class ArrivalLog:
    """Writes rows in order of arrival, each once its request has left. Memory: the open requests' rows."""

    def __init__(self, file: IO[bytes], lags: TableFile) -> None:
        self._file, self._lags = file, lags
        self._rows: deque[_Row] = deque()
        self._open: dict[int, _Row] = {}
        self._ended: list[Ticket] = []
        self.requests = 0

    def arrived(self, ticket: Ticket, numbers: Sequence[int]) -> None:
        """Add a request."""
        named = ticket.prompt_tokens + ticket.output_tokens
        text = (
            f'{{"timestamp": {ms(ticket.arrival_ns)}, "input_length": {ticket.prompt_tokens}, '
            f'"output_length": {ticket.output_tokens}, "hash_ids": {json.dumps(list(numbers))}, '
            f'"named_length": {named}'
        )
        row = self._open[ticket.number] = _Row(text, ticket)
        self._rows.append(row)
        self.requests += 1

    def on_abort(self, ticket: Ticket, at_ns: int) -> None:
        """Record the time at which a client aborted its request."""
        self._open[ticket.number].abort_after_ns = at_ns - ticket.arrival_ns

    def advanced(self, now_ns: int) -> None:
        """Do nothing."""

    def cleared(self, now_ns: int) -> None:
        """Do nothing: counts stay."""

    def closed(self, ticket: Ticket, sequence: ClosedRequest, now_ns: int) -> None:
        """Write the rows that are complete."""
        self._open.pop(ticket.number).closed = True
        while self._rows and self._rows[0].closed:
            self._write(self._rows.popleft())

    def _write(self, row: _Row) -> None:
        abort_text = f', "abort_after": {ms(row.abort_after_ns)}' if row.abort_after_ns >= 0 else ""
        self._file.write(f"{row.text}{abort_text}}}\n".encode())
        self._ended.append(row.ticket)
        if len(self._ended) >= 2 * _GROUP:  # the last answers may not have reached the client yet
            self._hand_over(_GROUP)

    def _hand_over(self, count: int) -> None:
        ended, self._ended = self._ended[:count], self._ended[count:]
        self._lags.write(
            {
                "request": np.array([t.number for t in ended], np.int32),
                "first_token_lag_ns": np.array([t.first_lag_ns for t in ended], np.int64),
                "worst_token_lag_ns": np.array([t.worst_lag_ns for t in ended], np.int64),
            }
        )

    def close(self) -> None:
        """Write the remaining rows; every request must have left."""
        self._hand_over(len(self._ended))
        self._lags.close()
        self._file.close()
