"""Progress of a simulation: two live lines on a terminal, else two lines every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvcache_sim.metrics.run import Observer, Progress

_LIVE_S = 0.2
_PLAIN_S = 10.0
_WIDTH = 80
_BAR = 8


class _Paced:
    """Draw at most once per ``interval_s`` of wall time, and every phase after the last event."""

    def __init__(self, draw: Callable[[str, str], None], interval_s: float) -> None:
        self.draw, self.interval_s = draw, interval_s
        self.start = time.monotonic()
        self.next = self.start + interval_s
        self.drawn = False

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self.next:
            self.next, self.drawn = now + self.interval_s, True
            self.draw(time_line(progress, now - self.start), state_line(progress))

    def phase(self, name: str) -> None:
        now = time.monotonic()
        if self.drawn or now >= self.next:  # a short run prints nothing
            self.draw("simulated 100 %", f"{name}, {now - self.start:,.0f} s so far")


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Observer | None]:
    """Yield the observer that suits stderr; None with ``quiet``. Live lines are cleared afterwards."""
    if quiet:
        yield None
    elif not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("NO_COLOR"):
        yield _Paced(lambda first, second: print(first, second, sep="\n", file=sys.stderr), _PLAIN_S)
    else:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

            def draw(first: str, second: str) -> None:
                text = Text(f"{first}\n{second}", no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)

            yield _Paced(draw, _LIVE_S)


def time_line(glance: Progress, wall_s: float) -> str:
    """Return the progress, the time left and the speed in requests and steps a second, in 80 columns.

    The share is of requests, never above 100 %; the time is the trace's, never beyond its last arrival.
    """
    done = min(1.0, glance.finished_requests / max(1, glance.total_requests))
    filled = round(done * _BAR)
    bar = f"▕{'█' * filled}{' ' * (_BAR - filled)}▏"
    eta = f"ETA {_clock(wall_s / done - wall_s)}" if done > 0 else "ETA unknown"
    seconds, last = glance.now_ns / 1e9, glance.end_ns / 1e9
    span = f"{_clock(min(seconds, last))} of {_clock(last)}" if last else f"at {_clock(seconds)}"
    rates = _short(glance.finished_requests / wall_s), _short(glance.steps / wall_s)
    speed = [f"{rates[0]} req/s", f"{rates[1]} steps/s", f"×{_short(seconds / wall_s)} real time"]
    return fitted([f"{bar} {100 * done:3.0f} %  {eta}", span, *speed], "  ")


def state_line(glance: Progress) -> str:
    """Return the queue, the hit rate, and the use of tiers and busiest channels, in 80 columns at most."""
    by_tier = " ".join(f"{tier} {100 * rate:.1f}" for tier, rate in glance.tier_hit_rates.items() if rate)
    parts = [f"queue {_short(glance.queue)}", f"hit {100 * min(1.0, glance.token_hit_rate):.1f} %"]
    busiest = sorted(glance.channels.items(), key=lambda channel: (-channel[1], channel[0]))[:2]
    busy = [f"{name} {100 * min(1.0, share):.0f} %" for name, share in busiest]
    tiers = [f"{tier} {100 * min(1.0, used):.0f} %" for tier, used in glance.tiers.items()]
    return fitted(
        [*parts, *busy[:1], *tiers, *busy[1:], *([f"of which {by_tier}"] if by_tier else [])], " | "
    )


def fitted(parts: list[str], between: str) -> str:
    """Return the parts that fit in 80 columns, the first parts first."""
    line = parts[0][:_WIDTH]
    for part in parts[1:]:
        if len(line) + len(between) + len(part) <= _WIDTH:
            line += between + part
    return line


def _short(value: float) -> str:
    """Return a number in at most 6 characters."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size:
            return f"{value / size:,.0f} {unit}" if value < 1e13 else f"{value:.0e}"
    return f"{value:,.0f}"


def _clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds, or days where it is long."""
    whole = round(min(max(seconds, 0.0), 1e15))
    if whole >= 100 * 3600:
        return f"{whole / 86400:,.1f} d" if whole < 1e9 else f"{whole / 86400:.1e} d"
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
