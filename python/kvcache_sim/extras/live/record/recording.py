"""A recording: the proxy on its port until a signal, then the trace."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import uvloop

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.stop_signals import stop_signals
from kvcache_sim.extras.live.clock import settle
from kvcache_sim.extras.live.record.observed import Observed
from kvcache_sim.extras.live.record.proxy import Upstream, pass_on
from kvcache_sim.extras.live.record.texts import Texts
from kvcache_sim.extras.live.record.trace_file import TraceFile

#: A crash loses at most the last second.
_FLUSH_S = 0.5
#: Longest time (s) that forwarding waits for the writer.
_SWITCH_S = 0.0001


@dataclass(frozen=True, slots=True)
class Recording:
    """Addresses of the proxy and of its upstream."""

    host: str
    port: int
    upstream: Upstream
    #: File of texts; None: not kept.
    texts: Texts | None = None


def record(recording: Recording, trace: TraceFile, say: Callable[[str], None]) -> int:
    """Forward requests until a signal to stop; return the number of rows of the trace.

    UsageError if the port is not available.
    """
    sys.setswitchinterval(_SWITCH_S)
    uvloop.run(_record(recording, trace, say))
    return trace.close()


async def _record(recording: Recording, trace: TraceFile, say: Callable[[str], None]) -> None:
    stop, loop, start_ns = asyncio.Event(), asyncio.get_running_loop(), time.monotonic_ns()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    ended: asyncio.Queue[Observed] = asyncio.Queue()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await pass_on(reader, writer, recording.upstream, ended.put_nowait)

    try:
        server = await asyncio.start_server(connected, recording.host, recording.port, limit=1 << 20)
    except (OSError, UnicodeError) as error:
        where = f"{recording.host}:{recording.port}"
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError("cannot listen there", "--host, --port", where, hint=reason) from None
    port = server.sockets[0].getsockname()[1]
    settle()
    say(f"listening  http://{recording.host}:{port}/v1  passed on to {recording.upstream.host}")
    while not stop.is_set():
        with_timeout = asyncio.create_task(stop.wait())
        await asyncio.wait((with_timeout,), timeout=_FLUSH_S)
        with_timeout.cancel()
        gone = [ended.get_nowait() for _ in range(ended.qsize())]
        await asyncio.to_thread(_write, gone, recording, trace, start_ns)
    server.close()


def _write(gone: list[Observed], recording: Recording, trace: TraceFile, start_ns: int) -> None:
    """Write finished requests in another thread: hashing a long prompt takes milliseconds."""
    for observed in gone:
        trace.add(observed, start_ns)
        if recording.texts is not None:
            recording.texts.add(observed)
    trace.flush()
    if recording.texts is not None:
        recording.texts.flush()
