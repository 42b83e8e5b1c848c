"""A reverse proxy that forwards bytes unchanged, and parses a copy of requests and answers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import httptools

from kvcache_sim.base.addresses import address_of
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.live.record.observed import PATHS, Observed

#: Callback for each finished request.
Ended = Callable[[Observed], None]
#: Longest body (bytes) that is parsed; longer bodies are forwarded too.
_MOST_BYTES = 64 << 20


class Upstream:
    """The address that requests are forwarded to; plain HTTP. Raises UsageError for an invalid address."""

    def __init__(self, url: str) -> None:
        found = address_of(url.removesuffix("/"))
        if found is None or found.scheme != "http":
            hint = "requests keep their own paths"
            raise UsageError("no upstream", "--upstream", url, "http://HOST:PORT", hint)
        self.host, self.port = found.host, found.port or 80


class _Requests:
    """Parses the requests of a connection."""

    def __init__(self, open_requests: deque[Observed | None]) -> None:
        self._open, self._now = open_requests, 0
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._own = b"", None

    _own: Observed | None

    def feed(self, data: bytes, now_ns: int) -> None:
        self._now = now_ns
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url, self._own = b"", None

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        kind = PATHS.get(self._url.split(b"?", 1)[0])
        self._own = None if kind is None else Observed(kind, self._now)
        self._open.append(self._own)

    def on_body(self, body: bytes) -> None:
        if self._own is not None and len(self._own.body) <= _MOST_BYTES:
            self._own.body += body


class _Answers:
    """Parses the answers of a connection, which come in the order of its requests."""

    def __init__(self, open_requests: deque[Observed | None], ended: Ended) -> None:
        self._open, self._ended, self._now = open_requests, ended, 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes, now_ns: int) -> None:
        self._now = now_ns
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if self._open and self._open[0] is not None:
            self._open[0].status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._open and self._open[0] is not None:
            self._open[0].answered(body, self._now)

    def on_message_complete(self) -> None:
        observed = self._open.popleft() if self._open else None
        if observed is not None:
            observed.ended()
            self._ended(observed)


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: Upstream, ended: Ended
) -> None:
    """Forward one connection to the upstream until either side closes it."""
    try:
        up_reader, up_writer = await asyncio.open_connection(upstream.host, upstream.port)
    except OSError:
        writer.close()
        return
    open_requests: deque[Observed | None] = deque()
    directions = (
        _pump(reader, up_writer, _Requests(open_requests).feed),
        _pump(up_reader, writer, _Answers(open_requests, ended).feed),
    )
    tasks = [asyncio.create_task(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[1].done():  # the client has sent everything; the rest of the answer is still forwarded
            await asyncio.wait(tasks, timeout=None if open_requests and not reader.at_eof() else 0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for side in (writer, up_writer):
            side.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[bytes, int], None]
) -> None:
    looks = True
    while data := await reader.read(1 << 16):
        writer.write(data)  # forward first, then parse
        if looks:
            try:
                look(data, time.monotonic_ns())
            except httptools.HttpParserError:
                looks = False  # not HTTP that the parser reads; it is forwarded too
        if writer.transport.get_write_buffer_size() > 1 << 20:
            await writer.drain()
