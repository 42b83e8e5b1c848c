"""A request while it is served: its tokens so far and the callback for more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Ticket:
    """One sequence in the simulated cluster; simulated times in ns."""

    number: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    #: Finish reason after all its tokens, and the machine that it was sent to.
    finish_reason: str = "length"
    machine: int = 0
    tokens_out: int = 0
    #: Time of the first token that was not sent to its client; -1: all were sent.
    due_ns: int = -1
    #: Prompt tokens that were cached, known at the end.
    cached_tokens: int = 0
    #: True once it has left the cluster, and True if before its last token.
    closed: bool = False
    aborted: bool = False
    #: True if the machine's queue was full when it came.
    turned_away: bool = False
    #: The largest wall-clock lag of its tokens, and the lag of the first token.
    worst_lag_ns: int = 0
    first_lag_ns: int = -1
    #: Time of its last token so far; -1: none.
    last_ns: int = -1
    #: Called when it has left, and before that for tokens if ``streams``.
    on_progress: Callable[[], None] | None = None
    streams: bool = False

    def late(self, lag_ns: int) -> None:
        """Record the lag (ns) of the tokens that are sent now."""
        self.due_ns = -1
        if self.first_lag_ns < 0:
            self.first_lag_ns = lag_ns
        if lag_ns > self.worst_lag_ns:
            self.worst_lag_ns = lag_ns
