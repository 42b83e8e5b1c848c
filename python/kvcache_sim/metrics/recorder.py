"""The recorder: rows of finished requests and events, kept in columns."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from kvcache_sim.metrics.columns import REQUEST_COLUMNS, STATUSES
from kvcache_sim.metrics.digests import ResultsDigest, digest_of_results
from kvcache_sim.metrics.event_log import EventLog, EventRow
from kvcache_sim.metrics.parts import Part, Parts
from kvcache_sim.metrics.request_rows import KeptRows, RequestRows
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.serving.recorder import StepRow
from kvcache_sim.serving.sequence import Arrival, Status

#: Status codes of rows.
_STATUS = {Status[name.upper()]: code for code, name in enumerate(STATUSES)}
#: The columns of a request that was not served.
_UNSERVED = {**dict.fromkeys(REQUEST_COLUMNS, 0), "decode_machine": -1, "first_token_ns": -1, "finish_ns": -1}
#: A row of ``requests``; packs three times faster than an array takes integers one by one.
_ROW = Struct(f"{len(REQUEST_COLUMNS)}q")
#: Rows that the core hands over at a time, without and with an observer of rows.
ROWS_AT_A_TIME, WATCHED_ROWS = 1024, 16


class RunRecorder:
    """Records a run. Cost: about 240 bytes per request, 72 per event; no object outlives its request.

    ``window_ns`` bounds the optional events (``--record all``) to [start, end); None keeps none of them.
    ``check`` receives the columns of all rows in batches in file order, and raises if they are inconsistent.
    If rows or events are streamed during the run, only the last group stays in memory.
    """

    def __init__(self, window_ns: tuple[int, int] | None, check: Callable[[Part], None]) -> None:
        self.window_ns = window_ns
        self.rows_at_a_time = ROWS_AT_A_TIME
        self._check = check
        self._kept = KeptRows()
        self._digest: ResultsDigest | None = None
        self._rows = RequestRows(self._closed_to(self._kept.add))
        self._events = EventLog()

    # -- calls of the serving layer

    @property
    def row_columns(self) -> tuple[str, ...]:
        """Names of the columns of a request's row, in the order of ``add_rows``."""
        return tuple(REQUEST_COLUMNS)

    def add_rows(self, packed: bytes) -> None:
        """Keep rows of finished requests that the core has packed."""
        self._rows.add(packed)

    def add_events(self, packed: bytes, now_ns: int) -> None:
        """Keep packed rows of events with the core's codes of kinds; none is older than ``now_ns``."""
        self._events.extend(packed, now_ns)

    def log_milestone(self, kind: str, sequence: Arrival, machine: int, now_ns: int) -> None:
        """Log a milestone, if it is within the recorded window."""
        if self._wanted(now_ns):
            self._events.add(kind, "", EventRow(now_ns, 0, machine, sequence.request))

    def log_step(self, machine: int, step: StepRow) -> None:
        """Log an iteration."""
        begin_ns, duration_ns, tokens, sequences = step
        if self._wanted(begin_ns):
            self._events.add("step", "", EventRow(begin_ns, duration_ns, machine, -1, tokens, sequences))

    def log_eviction(self, machine: int, tier: str, now_ns: int, blocks: int) -> None:
        """Log an eviction from a tier."""
        if self._wanted(now_ns):
            self._events.add("evict", tier, EventRow(now_ns, 0, machine, -1, blocks=blocks))

    def starts_again(self, request: int, first_arrival_ns: int) -> None:
        """Restart a request's row at its first arrival; the time lost since then counts as queueing."""
        self._rows.first_arrivals[request] = first_arrival_ns

    def close_unserved(self, arrival: Arrival, status: Status, machine: int) -> None:
        """Keep the row of a rejected or failed request."""
        row = _UNSERVED | {
            "request": arrival.request,
            "machine": machine,
            "session": arrival.session,
            "turn": arrival.turn,
            "is_conversational_turn": arrival.is_conversational_turn,
            "status": _STATUS[status],
            "arrival_ns": arrival.arrival_ns,
            "input_tokens": arrival.prompt_num_tokens,
            "output_tokens": arrival.output_tokens,
        }
        self._rows.add(_ROW.pack(*row.values()))

    # -- queries of observers

    def hit_shares(self) -> dict[str, float]:
        """Return by source the cached share of the finished requests' prompt tokens."""
        return self._rows.hit_shares()

    # -- results of a finished run

    def end(self) -> None:
        """Hand over the last rows; every request must have been closed."""
        self._rows.end()

    def request_columns(self) -> dict[str, ColumnData]:
        """Return the columns of ``requests`` after the end; none if the rows were streamed."""
        return {} if self._digest is not None else self._kept.columns()

    def results_digest(self) -> str:
        """Return the digest of the columns of ``requests`` after the end, also of streamed rows."""
        return digest_of_results(self.request_columns()) if self._digest is None else self._digest.value()

    def stream_rows(self, take: Callable[[Part], None], digest: ResultsDigest) -> None:
        """Stream the columns of closed rows to ``take`` and ``digest`` in file order during the run."""
        self._digest = digest

        def leave(part: Part) -> None:
            digest.add(part)
            take(part)

        self._rows.leave_to(self._closed_to(leave))

    def stream_events(self, take: Callable[[Part], None]) -> None:
        """Stream events to ``take`` during the run, except optional events, which are logged late."""
        if self.window_ns is None:
            self._events.leave_to(take)

    def watch(self, take: Callable[[Part], None]) -> None:
        """Hand rows of closed requests to ``take`` in any order; its exceptions end the run."""
        self.rows_at_a_time = WATCHED_ROWS
        self._rows.watch(take)

    @property
    def left_outcomes(self) -> dict[str, int]:
        """Counts of each outcome among the streamed events."""
        return self._events.left_outcomes

    def event_columns(self) -> Parts:
        """Return the columns of the ``events`` that were not streamed."""
        return self._events.columns()

    def _wanted(self, now_ns: int) -> bool:
        return self.window_ns is not None and self.window_ns[0] <= now_ns < self.window_ns[1]

    def _closed_to(self, take: Callable[[Part], None]) -> Callable[[Part], None]:
        def checked(part: Part) -> None:
            self._check(part)
            take(part)

        return checked
