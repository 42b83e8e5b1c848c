"""The recorder of a run, as the serving layer calls it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvcache_sim.serving.sequence import Arrival, Status


class StepRow(NamedTuple):
    """An iteration: when it began and how long it took, and what it computed."""

    begin_ns: int
    duration_ns: int
    prefill_tokens: int
    decode_sequences: int


class Recorder(Protocol):
    """Keeps each request's row and events."""

    #: Milestones in [start, end) are recorded; None: none are.
    window_ns: tuple[int, int] | None
    #: Rows of finished requests that the core keeps before it hands them over.
    rows_at_a_time: int

    @property
    def row_columns(self) -> tuple[str, ...]:
        """Names of the columns of a request's row, in the order of ``add_rows``."""
        ...

    def starts_again(self, request: int, first_arrival_ns: int) -> None:
        """Restart a request's row at its first arrival."""
        ...

    def add_rows(self, packed: bytes) -> None:
        """Keep rows of finished requests that the core has packed."""
        ...

    def add_events(self, packed: bytes, now_ns: int) -> None:
        """Keep packed rows of events with the core's codes of kinds; none is older than ``now_ns``."""
        ...

    def log_milestone(self, kind: str, sequence: Arrival, machine: int, now_ns: int) -> None:
        """Log ``arrive`` (``--record all``); the core packs the other milestones."""
        ...

    def log_step(self, machine: int, step: StepRow) -> None:
        """Log an iteration."""
        ...

    def log_eviction(self, machine: int, tier: str, now_ns: int, blocks: int) -> None:
        """Log an eviction from a tier."""
        ...

    def close_unserved(self, arrival: Arrival, status: Status, machine: int) -> None:
        """Keep the row of a rejected or failed request."""
        ...
