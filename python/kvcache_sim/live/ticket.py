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
    #: Why it ends when all of its tokens have come, and the machine that it was sent to.
    finish_reason: str = "length"
    machine: int = 0
    tokens_out: int = 0
    #: When the first token came that its client has not been told of; -1: it was told of all.
    due_ns: int = -1
    #: Prompt tokens that were cached, known at the end.
    cached_tokens: int = 0
    #: Whether it has left the cluster, and whether before its last token.
    closed: bool = False
    aborted: bool = False
    #: The largest wall-clock lag of its tokens, and that of its first one.
    worst_lag_ns: int = 0
    first_lag_ns: int = -1
    #: When its last token came, -1: none has.
    last_ns: int = -1
    #: Called when it has left, and before that for tokens where ``streams``.
    on_progress: Callable[[], None] | None = None
    streams: bool = False

    def late(self, lag_ns: int) -> None:
        """Note by how much its tokens were written after their time; they are told now."""
        self.due_ns = -1
        if self.first_lag_ns < 0:
            self.first_lag_ns = lag_ns
        if lag_ns > self.worst_lag_ns:
            self.worst_lag_ns = lag_ns
