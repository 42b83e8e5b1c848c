"""What a store keeps of what happened: the digest of its records and, once asked for, its evictions."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcache_sim.reference.digest import RollingDigest


@dataclass(slots=True, eq=False)
class Recorded:
    """The part of ``GpuStore`` that records: the reference stores are such."""

    _digest: RollingDigest = field(default_factory=RollingDigest, init=False)
    _log: list[tuple[int, int, int]] | None = field(default=None, init=False)

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""
        self._digest.record(kind, now_ns, subject, value)

    @property
    def digest(self) -> int:
        """The rolling hash so far."""
        return self._digest.value

    def log_evictions(self) -> None:
        """Start keeping evictions."""
        self._log = []

    def _log_eviction(self, now_ns: int, tier: int, blocks: int) -> None:
        if blocks and self._log is not None:
            self._log.append((now_ns, tier, blocks))

    def take_evictions(self) -> list[tuple[int, int, int]]:
        """Return (time, tier, blocks) of the evictions since the last call."""
        taken, self._log = self._log or [], None if self._log is None else []
        return taken
