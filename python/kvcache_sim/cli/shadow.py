"""``kvsim shadow``: a live engine's hit rate compared with other caches', from its KV events."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.base.errors import EXIT_OK, UsageError
from kvcache_sim.cli.notices import remark
from kvcache_sim.cli.run_options import refuse_idle
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def shadow(
    file: Annotated[str, typer.Argument(metavar="[CAPTURE]", help="a capture instead of an engine")] = "",
    kv_events: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT", help="an engine's KV events, tcp://HOST:5557; may be repeated"),
    ] = None,
    kv_events_replay: Annotated[
        list[str] | None, typer.Option(metavar="ENDPOINT", help="its replay socket, for what came before")
    ] = None,
    capacity: Annotated[
        int, typer.Option(metavar="BLOCKS", min=0, help="GPU blocks of an engine; 0: seen once it evicts")
    ] = 0,
    times: Annotated[
        list[float] | None, typer.Option(min=0.01, help="memory, as a multiple of the engine's (2)")
    ] = None,
    cpu: Annotated[
        list[int] | None, typer.Option(metavar="BLOCKS", min=1, help="a CPU tier of so many blocks")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="another eviction policy (s3fifo)")] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="time between two lines")] = 5.0,
    pause: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="longest time between two blocks of one request")
    ] = 2.0,
    keep: Annotated[int, typer.Option(metavar="BLOCKS", min=1000, help="block references kept")] = 2_000_000,
    capture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write what comes, for kvsim trace import")
    ] = None,
    salt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="salt of the capture's hashes; else a forgotten one")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the capture")] = False,
) -> int:
    """Follow an engine's KV events: every few seconds its hit rate against other sizes, tiers and policies.

    It ends on SIGINT or SIGTERM, or with the capture. Rates are shares of whole prompt blocks.

    \b
    Examples:
      kvsim shadow --kv-events tcp://127.0.0.1:5557
      kvsim shadow --kv-events tcp://gpu-1:5557 --kv-events tcp://gpu-2:5557 --cpu 100000 --policy lfu
      kvsim shadow capture.jsonl --capacity 20000 --times 4
    """
    from kvcache_sim.cli.serve import needed

    needed("kvsim shadow", "zmq", "msgspec")
    from kvcache_sim.base.units import NS_PER_S
    from kvcache_sim.extras.live.shadow.caches import OtherCache, checked_policy
    from kvcache_sim.extras.live.shadow.capture import Capture
    from kvcache_sim.extras.live.shadow.feed import Feed
    from kvcache_sim.extras.live.shadow.following import Following
    from kvcache_sim.extras.live.shadow.watch import Compared, Watched, heading, remarks, replay, watch
    from kvcache_sim.workload.imports.naming import salt_of

    endpoints = kv_events or []
    if bool(endpoints) == bool(file):
        raise UsageError(
            "one of the two is needed", "kvsim shadow", expected="--kv-events ENDPOINT or a capture"
        )
    if file:
        refuse_idle("with a capture to read", kv_events_replay=kv_events_replay)
    if capture is None:
        refuse_idle("without --capture", salt_file=salt_file, force=force)
    for name, numbers in (("--times", times or []), ("--every", [every]), ("--pause", [pause])):
        if not all(map(isfinite, numbers)):
            raise UsageError("not a finite number", name, str(numbers))
    compared = Compared(
        [
            OtherCache("again"),
            *(OtherCache(f"{k:g} x GPU", times=k) for k in times or [2.0]),
            *(OtherCache(f"+ CPU {n:,}", more_blocks=n) for n in cpu or []),
            *(OtherCache(name, checked_policy(name)) for name in policy or ["s3fifo"]),
            OtherCache("unbounded", "unbounded"),
        ],
        capacity,
    )
    kept = None if capture is None else Capture(capture, salt_of(salt_file), force)
    following = Following(keep, int(pause * NS_PER_S))
    watched = Watched(following, kept, lambda text: print(text, flush=True))
    print(heading(compared), flush=True)
    try:
        if file:
            from kvcache_sim.extras.live.shadow.capture import captured

            replay(captured(file), watched, compared, every)
        else:
            with _until_a_signal() as stopped, closing(Feed(endpoints, kv_events_replay or [])) as feed:
                watch(feed, watched, compared, every, stopped)
    finally:
        if kept is not None:
            kept.close()
    for text in remarks(following):
        remark(text)
    if kept is not None:
        from kvcache_sim.report.plain_table import next_line

        print(f"{kept.batches:,} batches in {capture}", file=sys.stderr)
        print(next_line("trace", "import", capture, "-o", f"{capture}.trace.jsonl"), file=sys.stderr)
    return EXIT_OK


@contextlib.contextmanager
def _until_a_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after SIGINT or SIGTERM; a second signal ends the process."""
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def came(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in numbers:
        signal.signal(number, came)
    try:
        yield lambda: bool(seen)
    finally:
        for number in numbers:
            signal.signal(number, before[number])
