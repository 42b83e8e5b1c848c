"""Printed lines while engines are followed: their hit rate compared with that of other caches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.extras.live.shadow.caches import OtherCache, Share, engine_share, other_shares
from kvcache_sim.extras.live.shadow.capture import Capture, Captured
from kvcache_sim.extras.live.shadow.causes import causes_text
from kvcache_sim.extras.live.shadow.feed import Feed
from kvcache_sim.extras.live.shadow.following import Following
from kvcache_sim.workload.imports.kv_batch import KvBatch

_UNKNOWN = "–"
_WIDTH = 9
#: Longest wait before a signal is seen, in seconds.
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Watched:
    """The followed engines, the capture file, and the callback for lines."""

    following: Following
    capture: Capture | None
    say: Callable[[str], None]

    def take(self, source: str, batch: KvBatch) -> None:
        """Process a batch and capture it."""
        self.following.take(source, batch)
        if self.capture is not None:
            self.capture.add(source, batch)

    def report(self, compared: Compared, when: str) -> None:
        """Print the current line."""
        self.following.forget()
        self.say(line(self.following, compared, when))
        if self.capture is not None:
            self.capture.flush()


@dataclass(frozen=True, slots=True)
class Compared:
    """The other caches, and the blocks of an engine (0: the most it held, once it has evicted)."""

    others: Sequence[OtherCache]
    engine_blocks: int = 0


def heading(compared: Compared) -> str:
    """Return the names of the columns."""
    names = ["time", "engine", "below", *(other.name for other in compared.others), "look-ups", "held"]
    return "  ".join(f"{name:>{max(_WIDTH, len(name))}}" for name in names)


def line(following: Following, compared: Compared, when: str) -> str:
    """Return a line of the table: hit rates over the counted lookups of all engines."""
    on_gpu, below = Share(), Share()
    others = [Share() for _ in compared.others]
    look_ups = held = 0
    known = True
    for engine in following.engines.values():
        on_gpu += engine_share(engine)
        below += engine_share(engine, below=True)
        look_ups += len(engine.look_ups) - engine.warming
        held += engine.state.held
        blocks = compared.engine_blocks or (engine.state.most_held if engine.state.has_evicted else 0)
        known = known and blocks > 0
        found = other_shares(engine, blocks, compared.others)
        others = [a + b for a, b in zip(others, found, strict=True)]
    names = [other.name for other in compared.others]
    rates = [
        _percent(share) if known or other.policy == "unbounded" else _UNKNOWN
        for other, share in zip(compared.others, others, strict=True)
    ]
    cells = [when, _percent(on_gpu), _percent(below) if below.found else _UNKNOWN, *rates]
    cells += [f"{look_ups:,}", f"{held:,}"]
    widths = ["time", "engine", "below", *names, "look-ups", "held"]
    return "  ".join(f"{c:>{max(_WIDTH, len(n))}}" for c, n in zip(cells, widths, strict=True))


def _percent(share: Share) -> str:
    return _UNKNOWN if share.rate is None else f"{share.rate:.1%}"


def watch(
    feed: Feed, watched: Watched, compared: Compared, every_s: float, stopped: Callable[[], bool]
) -> None:
    """Follow engines until ``stopped``, with a line every ``every_s`` seconds and a last line.

    After a slow line the next waits ten times its duration, so that batches are not missed.
    """
    due = time.monotonic() + every_s
    while not stopped():
        for source, batch in feed.take(min(max(due - time.monotonic(), 0.0), _LOOK_S)):
            if source.restarts:  # this batch is the first of an engine whose cache is empty
                watched.following.restarted(source.endpoint)
                source.restarts = 0
            watched.take(source.endpoint, batch)
        if time.monotonic() >= due:
            started = time.monotonic()
            watched.report(compared, time.strftime("%H:%M:%S"))
            due = time.monotonic() + max(every_s, 10 * (time.monotonic() - started))
    watched.following.missed = sum(source.missed for source in feed.sources)
    watched.following.unreadable = sum(source.unreadable for source in feed.sources)
    watched.report(compared, time.strftime("%H:%M:%S"))


def replay(batches: Iterable[Captured], watched: Watched, compared: Compared, every_s: float) -> None:
    """Follow a capture by its own dates, with a last line at its end."""
    due = first = None
    for source, batch in batches:
        first = batch.at_ns if first is None else first
        due = batch.at_ns + every_s * NS_PER_S if due is None else due
        if batch.at_ns >= due:
            watched.report(compared, _since(due - first))
            due += every_s * NS_PER_S * (1 + (batch.at_ns - due) // (every_s * NS_PER_S))
        watched.take(source, batch)
        last = batch.at_ns - first
    if first is not None:
        watched.report(compared, _since(last))


def _since(span_ns: float) -> str:
    return f"+{span_ns / NS_PER_S:,.0f} s"


def remarks(following: Following) -> list[str]:
    """Return remarks on the causes of misses, uncounted lookups and missing figures."""
    engines = list(following.engines.values())
    unknown, forgotten = sum(e.unknown for e in engines), sum(e.forgotten for e in engines)
    found = []
    if not engines:
        found.append("no batch received: check --enable-kv-cache-events and the endpoint of the engine")
    if causes := causes_text(engines):
        found.append(causes)
    if unknown:
        found.append(f"{unknown:,} lookups are not counted: their prefixes were stored before the start")
    if forgotten:
        found.append(
            f"{forgotten:,} lookups are forgotten (--keep), and the next third only fills the caches"
        )
    if following.missed:
        found.append(f"{following.missed:,} batches are missing: lost in transit or sent before the start")
    if following.unreadable:
        found.append(f"{following.unreadable:,} messages are not batches of events")
    found += [f"{count:,} left out: {reason}" for reason, count in following.left_out.items()]
    if following.restarts:
        found.append(f"{following.restarts:,} restarts of engines")
    if engines and not any(engine.state.has_evicted for engine in engines):
        found.append("nothing was evicted yet, so the engine's size is unknown: set --capacity")
    return found
