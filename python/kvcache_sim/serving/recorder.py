"""What the serving floor tells whoever records a run."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.serving.outcome import PrefixCacheEvent
from kvcache_sim.serving.sequence import Arrival, SequenceState


class Recorder(Protocol):
    """Sees each request's milestones; seed 000's logging calls keep their names."""

    #: Milestones in [start, end) are wanted; None: none are.
    window_ns: tuple[int, int] | None
    #: How many rows of finished requests the core keeps before it hands them over.
    rows_at_a_time: int

    @property
    def row_columns(self) -> tuple[str, ...]:
        """Names of the columns of a request's row, in the order of ``add_rows``."""
        ...

    def starts_again(self, request: int, first_arrival_ns: int) -> None:
        """Let a request's row begin at its first arrival."""
        ...

    def add_rows(self, packed: bytes) -> None:
        """Keep rows of finished requests that the core has packed."""
        ...

    def add_events(self, packed: bytes, now_ns: int) -> None:
        """Keep rows of events that the core has packed, kinds by their code there; none is older than now."""
        ...

    def log_prefix_cache_event(
        self, sequence: SequenceState, machine: int, now_ns: int, event: PrefixCacheEvent
    ) -> None:
        """Log what a look-up found: its type, the cached length and the tokens left to prefill."""
        ...

    def log_prefill_start(self, sequence: SequenceState, machine: int, now_ns: int, tokens: int) -> None:
        """Log that the prefill of ``tokens`` missed tokens starts."""
        ...

    def log_milestone(self, kind: str, sequence: Arrival, machine: int, now_ns: int) -> None:
        """Log ``arrive``, ``admit``, ``preempt``, ``first_token`` or ``finish`` (``--record all``)."""
        ...

    def log_transfer(self, transfer: Transfer, machine: int) -> None:
        """Log a transfer as it is sent (``--record all``)."""
        ...

    def log_step(self, machine: int, step: tuple[int, int, int, int]) -> None:
        """Log an iteration: (begin, duration, prefill tokens, decode sequences)."""
        ...

    def log_eviction(self, machine: int, tier: str, now_ns: int, blocks: int) -> None:
        """Log an eviction from a tier."""
        ...

    def close(self, sequence: SequenceState, machine: int) -> None:
        """Keep the row of a finished or rejected request; the sequence is dropped afterwards."""
        ...
