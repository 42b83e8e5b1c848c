"""Counted notes on a trace, one line each."""

from __future__ import annotations

import numpy as np

from kvcache_sim.base.values import Value
from kvcache_sim.workload.trace import NO_SESSION, Trace


class Finding(Value):
    """A counted note of the reader: its kind, count, first line, and a sentence."""

    kind: str
    count: int
    line: int
    text: str


def line_of(where: str, finding: Finding) -> str:
    """Return a note as one line with its location."""
    return f"{where}:{finding.line}: {finding.text}" if finding.line else f"{where}: {finding.text}"


HIT_RATES_NEED_IDS = "the rows name no blocks and no sessions: hit rates need ids"


def nothing_to_share(trace: Trace) -> list[Finding]:
    """Return a note on a trace without block ids and sessions: nothing in it can be reused."""
    if len(trace.block_ids) or bool(np.any(trace.session != NO_SESSION)):
        return []
    text = (
        f"{HIT_RATES_NEED_IDS}; every prompt counts as unique, unless --synthesise-prefixes assumes shared "
        "prefixes"
    )
    return [Finding("nothing-to-share", len(trace), 0, text)]


#: Arrivals outside these mean rates (requests per second) are probably in another unit.
_FASTEST_PER_S = 100.0
_SLOWEST_PER_S = 1 / 3_600.0
_YEAR_NS = 31_557_600 * 10**9


def odd_times(trace: Trace) -> list[Finding]:
    """Return notes on arrivals that look like another unit, a single time, or dates."""
    return odd_span(*open_span(trace))


def open_span(trace: Trace) -> tuple[int, int, int]:
    """Return the number of requests with a time of their own, and their first and last arrival in ns."""
    open_loop = trace.arrival_ns[trace.think_ns < 0]
    return (len(open_loop), int(open_loop.min()), int(open_loop.max())) if len(open_loop) else (0, 0, 0)


def odd_span(n: int, first: int, last: int) -> list[Finding]:
    """Return the notes of ``odd_times`` on ``n`` arrivals from ``first`` to ``last`` in ns."""
    found: list[Finding] = []
    if n == 0:
        return found
    if n > 1 and first == last:
        found.append(Finding("equal-times", n, 0, f"all {n:,} requests arrive at the same time"))
    elif n >= 100:
        rate = (n - 1) / ((last - first) / 1e9)
        if rate > _FASTEST_PER_S:
            text = f"{rate:,.0f} requests/s on average: the times look like seconds read as ms"
            found.append(Finding("units", n, 0, text))
        elif rate < _SLOWEST_PER_S:
            text = f"one request in {1 / rate:,.0f} s on average: the times look like us or ns read as ms"
            found.append(Finding("units", n, 0, text))
    if first > _YEAR_NS:
        text = (
            f"the first request arrives {first / _YEAR_NS:.1f} years after time 0: the times look like dates"
        )
        found.append(Finding("units", 1, 0, text))
    return found
