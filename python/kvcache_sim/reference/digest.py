"""The rolling hash over semantic records, in Python: the reference of the native one (I11)."""

from __future__ import annotations

_MULTIPLIER = 0x9E37_79B9_7F4A_7C15
_MASK = (1 << 64) - 1
_START = 0x6B76_7369_6D00_0001


class RollingDigest:
    """``h = mix((h ^ word) · K)`` for every word, modulo 2⁶⁴."""

    def __init__(self) -> None:
        self.value = _START

    def word(self, word: int) -> None:
        """Add one word."""
        h = ((self.value ^ word) * _MULTIPLIER) & _MASK
        self.value = h ^ (h >> 32)

    def record(self, kind: int, time_ns: int, subject: int, value: int) -> None:
        """Add one record."""
        for word in (kind, time_ns, subject, value):
            self.word(word)
