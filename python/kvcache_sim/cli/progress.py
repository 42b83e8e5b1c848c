"""What a person sees while a simulation runs: two live lines on a terminal, else a line every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvcache_sim.metrics.run import Observer, Progress

_LIVE_S = 0.2
_PLAIN_S = 10.0
_BAR = 24


class _Paced:
    """Draws at most once per ``interval_s`` of wall time."""

    def __init__(self, draw: Callable[[Progress, float], None], interval_s: float) -> None:
        self.draw, self.interval_s = draw, interval_s
        self.start = time.monotonic()
        self.next = self.start + interval_s

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self.next:
            self.next = now + self.interval_s
            self.draw(progress, now - self.start)


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Observer | None]:
    """Yield the observer that suits stderr; None with ``quiet``. What it drew live is gone afterwards."""
    if quiet:
        yield None
    elif not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("NO_COLOR"):
        yield _Paced(lambda glance, wall_s: print(_plain(glance, wall_s), file=sys.stderr), _PLAIN_S)
    else:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

            def draw(glance: Progress, wall_s: float) -> None:
                text = f"{_time_line(glance, wall_s)}\n{_state_line(glance)}"
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

            yield _Paced(draw, _LIVE_S)


def _plain(glance: Progress, wall_s: float) -> str:
    return f"{_time_line(glance, wall_s)} | {_state_line(glance)}"


def _time_line(glance: Progress, wall_s: float) -> str:
    done = glance.done_requests / max(1, glance.total_requests)
    filled = round(done * _BAR)
    bar = "█" * filled + " " * (_BAR - filled)
    seconds = glance.now_ns / 1e9
    span = f" / {_clock(glance.end_ns / 1e9)}" if glance.end_ns else ""
    eta = f"  ETA {wall_s / done - wall_s:.0f} s" if done > 0 else ""
    rate = f"{glance.events / wall_s / 1e6:.2f} M ev/s"
    return (
        f"simulated time {_clock(seconds)}{span} ▕{bar}▏ {100 * done:.0f} %  {rate}  "
        f"×{seconds / wall_s:,.0f} real time{eta}"
    )


def _state_line(glance: Progress) -> str:
    parts = [f"{tier} {100 * used:.0f} %" for tier, used in glance.tiers.items()]
    by_tier = " ".join(f"{tier} {100 * rate:.1f}" for tier, rate in glance.tier_hit_rates.items() if rate)
    parts.append(f"hit {100 * glance.token_hit_rate:.1f} %" + (f" ({by_tier})" if by_tier else ""))
    parts.append(f"q {glance.queue}")
    busiest = sorted(glance.channels.items(), key=lambda channel: (-channel[1], channel[0]))[:2]
    parts += [f"{name} {100 * busy:.0f} %" for name, busy in busiest]
    return " | ".join(parts)


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
