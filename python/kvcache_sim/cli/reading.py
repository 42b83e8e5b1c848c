"""A long trace while it is read: progress on stderr, and the memory that its exact curve may take."""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from dataclasses import dataclass, field

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_bytes, parse_size_bytes

#: Least memory: the interpreter, buffers and pyarrow take half of it.
LEAST_BYTES = 512 << 20
#: The share of the memory at which the exact curve is given up, and that of a sample with its bytes an id.
_EXACT, _SAMPLE, _SAMPLED_BYTES = 0.8, 0.4, 130
#: Decompressed bytes to a stored one where a file is compressed.
_COMPRESSED = 8


class OverMemoryError(Exception):
    """A curve would take more memory, or more ids, than allowed; ``rate`` is that of a sample to try next."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.rate = rate


def parse_memory(text: str) -> int:
    """Return the bytes of ``--memory``, 0 for none; raises ``UsageError`` for less than Python takes."""
    limit = parse_size_bytes(text) if text else 0
    if text and limit < LEAST_BYTES:
        raise UsageError("too little memory", "--memory", repr(text), f"≥ {format_bytes(LEAST_BYTES)}")
    return limit


def sample_ids(memory: int) -> int:
    """Return the most ids of a sample in so many bytes."""
    return int(_SAMPLE * memory / _SAMPLED_BYTES)


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def clear_line() -> None:
    """Clear the line of a terminal."""
    if sys.stderr.isatty():
        print(" " * 79, end="\r", file=sys.stderr)


@dataclass
class Reading:
    """Watches rows (``RowStream.watch``): a line on stderr every so often, an end at ``memory`` bytes.

    It also ends beyond ``ids`` distinct ids; ``rate`` is the share of the ids that is read.
    """

    path: str
    memory: int = 0
    ids: int = 0
    rate: float = 1.0
    start: float = field(default_factory=time.monotonic)
    shown: float = 0.0

    def __call__(self, read: int, references: int, distinct: int) -> None:
        """Take the bytes, references and distinct ids so far; raises ``OverMemoryError``."""
        self.check_ids(distinct)
        stored = os.path.getsize(self.path) if os.path.isfile(self.path) else 0
        if stored and read > stored:
            stored *= _COMPRESSED
        part = min(1.0, read / stored) if stored else 0.0
        if self.memory and peak_bytes() > _EXACT * self.memory:
            fit = sample_ids(self.memory) / max(1, distinct) * (part or 0.1)
            raise OverMemoryError(1 / max(2, math.ceil(1 / fit)))
        passed = time.monotonic() - self.start
        live = sys.stderr.isatty()
        if passed - self.shown >= (0.5 if live else 10.0):
            self.shown = passed
            print(self._line(read, references, part, passed), end="\r" if live else "\n", file=sys.stderr)

    def check_ids(self, distinct: int) -> None:
        """Raise ``OverMemoryError`` for more ids than allowed, with a half, quarter … of the share read."""
        if self.ids and distinct > self.ids:
            raise OverMemoryError(self.rate / (1 << (distinct // self.ids).bit_length()))

    def done(self) -> None:
        """Clear the line of a terminal."""
        if self.shown:
            clear_line()

    def _line(self, read: int, references: int, part: float, passed_s: float) -> str:
        left = f", {part:.0%}, {passed_s / part - passed_s:,.0f} s left" if part else ""
        speed = f"{references / 1e6:,.0f} M references, {references / passed_s / 1e6:,.1f} M/s"
        return f"read {format_bytes(read)}{left}, {speed}".ljust(79)
