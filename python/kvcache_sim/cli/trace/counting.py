"""Progress of work on a trace: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PLAIN_S = 10.0


@contextmanager
def counting(total: int, unit: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of further items done; it draws on stderr unless ``quiet``."""
    if quiet:
        yield lambda count: None
    elif not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("NO_COLOR"):
        yield _plain(total, unit)
    else:
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True, refresh_per_second=5) as bar:
            task = bar.add_task(unit, total=total)
            yield lambda count: bar.advance(task, count)


def _plain(total: int, unit: str) -> Callable[[int], None]:
    done, start = 0, time.monotonic()
    due = start + _PLAIN_S

    def advance(count: int) -> None:
        nonlocal done, due
        done += count
        now = time.monotonic()
        if now >= due:
            due = now + _PLAIN_S
            left = (now - start) * (total - done) / max(1, done)
            print(f"{done:,} of {total:,} {unit}, ETA {left:.0f} s", file=sys.stderr)

    return advance
