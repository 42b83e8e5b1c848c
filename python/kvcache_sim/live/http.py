"""One HTTP exchange over ASGI: its body read within a limit, its answer whole or in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from kvcache_sim.live.refusals import Refusal

if TYPE_CHECKING:
    from kvcache_sim.live.record.observed import Observed

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


class _Rest:
    """What is left of a coroutine that was run until it waited for the first time."""

    def __init__(self, waited: Any, coroutine: Generator[Any, Any, None]) -> None:
        self._waited, self._coroutine = waited, coroutine

    def __await__(self) -> Generator[Any, Any, None]:
        yield self._waited
        yield from self._coroutine


def _nobody() -> None:
    """Nobody waits to put more."""


class Exchange:
    """A request and the way to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method, self.path = str(scope["method"]), str(scope["path"])
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._receive, self._send = receive, send
        self.answered = False
        #: When its body had come, in simulated time.
        self.came_ns: int | None = None
        #: What is kept of it, where texts are.
        self.heard: Observed | None = None
        self._rest: asyncio.Future[None] | None = None
        self._ready: Callable[[], None] = _nobody

    async def body(self, most_bytes: int) -> bytes:
        """Return the body; Refusal 413 for a longer one, without reading all of it."""
        told = self.headers.get(b"content-length", b"0")
        if told.isdigit() and int(told) > most_bytes:
            raise Refusal(413, f"the body has {int(told)} bytes; at most {most_bytes} are taken")
        pieces, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError
            piece = message.get("body", b"")
            size += len(piece)
            if size > most_bytes:
                raise Refusal(413, f"the body has more than {most_bytes} bytes")
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    async def gone(self) -> None:
        """Return once the client has hung up; the body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        """Send the head of the answer."""
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, piece: bytes, more: bool = True) -> None:
        """Send a piece of the body; waits while the client reads slowly."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def stream(self, ready: Callable[[], None]) -> None:
        """Begin a stream of events; ``ready`` is called when a client that read slowly takes more."""
        self._ready = ready
        await self.start(200, _EVENTS)

    @property
    def waits(self) -> bool:
        """Whether the client has yet to read: nothing may be put before ``ready`` is called."""
        return self._rest is not None

    def put(self, piece: bytes, more: bool = True) -> None:
        """Send a piece of a stream at once, without a task where the connection has room for it."""
        sending = self._send({"type": "http.response.body", "body": piece, "more_body": more}).__await__()
        try:
            waited = next(sending)
        except StopIteration:
            return
        self._rest = asyncio.ensure_future(_Rest(waited, sending))
        self._rest.add_done_callback(self._took)

    def _took(self, rest: asyncio.Future[None]) -> None:
        self._rest = None
        if not rest.cancelled():
            rest.result()
            self._ready()

    def give_up(self) -> None:
        """Wait no longer for the client to read; nobody is called any more."""
        self._ready = _nobody
        if self._rest is not None:
            self._rest.cancel()

    async def answer(self, body: bytes, status: int, *headers: tuple[bytes, bytes]) -> None:
        """Send a whole answer."""
        await self.start(status, (b"content-length", str(len(body)).encode()), *headers)
        await self.write(body, more=False)

    async def json(self, value: Any, status: int = 200) -> None:
        """Send a value as JSON."""
        await self.answer(msgspec.json.encode(value), status, _JSON)

    async def refuse(self, refusal: Refusal) -> None:
        """Say no; where a stream has begun, as its last event."""
        if not self.answered:
            await self.json(refusal.body(), refusal.status)
            return
        event = b"data: " + msgspec.json.encode(refusal.body()) + b"\n\ndata: [DONE]\n\n"
        await self.write(event, more=False)
