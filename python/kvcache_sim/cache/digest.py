"""The digest of a machine: a hash over records of what it did."""

from __future__ import annotations

from typing import Protocol

# Kinds of record.
ARRIVE, ADMIT, FIRST_TOKEN, PREEMPT, EVICT, TRANSFER, FINISH, HANDOVER = range(1, 9)


class Digest(Protocol):
    """A 64-bit rolling hash over records."""

    def record(self, kind: int, time_ns: int, subject: int, value: int) -> None:
        """Add one record."""
        ...

    @property
    def value(self) -> int:
        """The hash so far."""
        ...
