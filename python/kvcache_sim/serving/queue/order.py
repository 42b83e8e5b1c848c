"""The contract of a queue order: a key for each waiting request, the smallest goes first."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Waiting(NamedTuple):
    """A waiting request, as a queue order sees it."""

    request: int
    arrival_ns: int
    turn: int
    #: Tokens to compute or reuse, and those of them that are cached on this machine.
    tokens: int
    cached_tokens: int
    #: Times that a later request was admitted before it.
    passed: int
    #: The trace's ``priority``, 0 where it has none.
    priority: int = 0


class QueueOrder(Protocol):
    """An order of admission. Ties go to the earliest arrival."""

    def key(self, waiting: Waiting) -> tuple[float, ...]:
        """Return the sort key of a waiting request, a function of what it sees: asked for when that changes.

        Args:
            waiting: The request: times in ns, lengths in tokens.

        Returns:
            Finite numbers, as many for every request; the smallest tuple is admitted first.
        """
        ...
