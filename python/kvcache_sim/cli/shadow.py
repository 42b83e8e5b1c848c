"""``kvsim shadow``: a live engine's hit rate compared with other caches', from its KV events."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kvcache_sim.base.errors import EXIT_OK, UsageError
from kvcache_sim.base.stop_signals import stop_signals
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import remark
from kvcache_sim.cli.run_options import refuse_idle
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.extras.live.shadow.watch import Compared

app = verb_app()


class Events(Value):
    """The source of KV events."""

    file: Annotated[str, Argument(metavar="[CAPTURE]", help="a capture instead of an engine")] = ""
    kv_events: Annotated[
        list[str] | None,
        Option(metavar="ENDPOINT", help="an engine's KV events, tcp://HOST:5557; may be repeated"),
    ] = None
    kv_events_replay: Annotated[
        list[str] | None, Option(metavar="ENDPOINT", help="its replay socket, for what came before")
    ] = None


class Others(Value):
    """The caches to compare an engine's with."""

    capacity: Annotated[
        int, Option(metavar="BLOCKS", min=0, help="GPU blocks of an engine; 0: seen once it evicts")
    ] = 0
    times: Annotated[
        list[float] | None, Option(min=0.01, help="memory, as a multiple of the engine's (2)")
    ] = None
    cpu: Annotated[list[int] | None, Option(metavar="BLOCKS", min=1, help="a CPU tier of so many blocks")] = (
        None
    )
    policy: Annotated[list[str] | None, "another eviction policy (s3fifo)"] = None

    def compared(self) -> Compared:
        """Return the caches, the engine's own memory first and an unbounded one last."""
        from kvcache_sim.extras.live.shadow.caches import OtherCache, checked_policy
        from kvcache_sim.extras.live.shadow.watch import Compared

        others = [
            OtherCache("again"),
            *(OtherCache(f"{k:g} x GPU", times=k) for k in self.times or [2.0]),
            *(OtherCache(f"+ CPU {n:,}", more_blocks=n) for n in self.cpu or []),
            *(OtherCache(name, checked_policy(name)) for name in self.policy or ["s3fifo"]),
            OtherCache("unbounded", "unbounded"),
        ]
        return Compared(others, self.capacity)


class Pace(Value):
    """The time between lines, and the memory of the engine's blocks."""

    every: Annotated[float, Option(metavar="SECONDS", min=0.1, help="time between two lines")] = 5.0
    pause: Annotated[
        float, Option(metavar="SECONDS", min=0, help="longest time between two blocks of one request")
    ] = 2.0
    keep: Annotated[int, Option(metavar="BLOCKS", min=1000, help="block references kept")] = 2_000_000


class CaptureFile(Value):
    """The capture to write."""

    capture: Annotated[
        Path | None, Option(metavar="FILE", help="write what comes, for kvsim trace import")
    ] = None
    salt_file: Annotated[
        Path | None, Option(metavar="FILE", help="salt of the capture's hashes; else a forgotten one")
    ] = None
    force: Annotated[bool, "replace the capture"] = False


@app.command()
def shadow(events: Events, others: Others, pace: Pace, output: CaptureFile) -> int:
    """Follow an engine's KV events: every few seconds its hit rate against other sizes, tiers and policies.

    It ends on SIGINT, SIGTERM or SIGHUP, or with the capture. Rates are shares of whole prompt blocks.

    \b
    Examples:
      kvsim shadow --kv-events tcp://127.0.0.1:5557
      kvsim shadow --kv-events tcp://gpu-1:5557 --kv-events tcp://gpu-2:5557 --cpu 100000 --policy lfu
      kvsim shadow capture.jsonl --capacity 20000 --times 4
    """
    from kvcache_sim.cli.serve import needed

    needed("kvsim shadow", "zmq", "msgspec")
    from kvcache_sim.base.units import NS_PER_S
    from kvcache_sim.extras.live.shadow.capture import Capture, captured
    from kvcache_sim.extras.live.shadow.feed import Feed
    from kvcache_sim.extras.live.shadow.following import Following
    from kvcache_sim.extras.live.shadow.watch import Watched, heading, remarks, replay, watch
    from kvcache_sim.workload.imports.naming import salt_of

    endpoints = events.kv_events or []
    if bool(endpoints) == bool(events.file):
        raise UsageError(
            "one of the two is needed", "kvsim shadow", expected="--kv-events ENDPOINT or a capture"
        )
    if events.file:
        refuse_idle("with a capture to read", kv_events_replay=events.kv_events_replay)
    if output.capture is None:
        refuse_idle("without --capture", salt_file=output.salt_file, force=output.force)
    for name, numbers in (
        ("--times", others.times or []),
        ("--every", [pace.every]),
        ("--pause", [pace.pause]),
    ):
        if not all(map(isfinite, numbers)):
            raise UsageError("not a finite number", name, str(numbers))
    compared = others.compared()
    kept = (
        None if output.capture is None else Capture(output.capture, salt_of(output.salt_file), output.force)
    )
    following = Following(pace.keep, int(pace.pause * NS_PER_S))
    watched = Watched(following, kept, lambda text: print(text, flush=True))
    print(heading(compared), flush=True)
    try:
        if events.file:
            replay(captured(events.file), watched, compared, pace.every)
        else:
            with (
                _until_a_signal() as stopped,
                closing(Feed(endpoints, events.kv_events_replay or [])) as feed,
            ):
                watch(feed, watched, compared, pace.every, stopped)
    finally:
        if kept is not None:
            kept.close()
    for text in remarks(following):
        remark(text)
    if kept is not None:
        from kvcache_sim.report.plain_table import next_line

        print(f"{kept.batches:,} batches in {output.capture}", file=sys.stderr)
        words = ("trace", "import", output.capture, "-o", f"{output.capture}.trace.jsonl")
        print(next_line(*words), file=sys.stderr)
    return EXIT_OK


@contextlib.contextmanager
def _until_a_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after a signal to stop; a second signal ends the process."""
    seen: list[int] = []
    before = {number: signal.getsignal(number) for number in stop_signals()}

    def came(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, came)
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
