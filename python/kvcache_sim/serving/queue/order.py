"""What a queue order is: a key for each waiting request, the smallest goes first."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Waiting(NamedTuple):
    """What an order sees of a waiting request."""

    request: int
    arrival_ns: int
    turn: int
    #: Tokens to compute or reuse, and how many of them are cached on this machine.
    tokens: int
    cached_tokens: int
    #: How often a later one was admitted before it.
    passed: int
    #: The trace's ``priority``, 0 where it has none.
    priority: int = 0


class QueueOrder(Protocol):
    """An order of admission. Ties go to whoever came first."""

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return what orders a request: the smallest is admitted first."""
        ...
