"""A stream of server-sent events: one write per piece, and at most one piece waits for a slow client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from starlette.types import Send

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class _Remainder:
    """The rest of a coroutine that ran until its first wait."""

    def __init__(self, waited: Any, coroutine: Generator[Any, Any, None]) -> None:
        self._waited, self._coroutine = waited, coroutine

    def __await__(self) -> Generator[Any, Any, None]:
        yield self._waited
        yield from self._coroutine


def _ignore() -> None:
    """Do nothing."""


class EventStream:
    """The body of one answer, written in pieces over ASGI.

    ``put`` writes at once, from the clock's callback: Starlette's ``StreamingResponse`` would wake a task per
    token.

    Args:
        send: ASGI's callable that sends a message.
        on_writable: Called when a slow client can receive more.
    """

    def __init__(self, send: Send, on_writable: Callable[[], None]) -> None:
        self._send, self._on_writable = send, on_writable
        self._unsent: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Send the head of the answer."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

    @property
    def is_blocked(self) -> bool:
        """True if the client has to read first: no ``put`` before ``on_writable`` is called."""
        return self._unsent is not None

    def put(self, piece: bytes, more: bool = True) -> None:
        """Send a piece at once, without a task if the connection has buffer space for it."""
        sending = self._send({"type": "http.response.body", "body": piece, "more_body": more}).__await__()
        try:
            waited = next(sending)
        except StopIteration:
            return
        self._unsent = asyncio.ensure_future(_Remainder(waited, sending))
        self._unsent.add_done_callback(self._sent)

    def _sent(self, unsent: asyncio.Future[None]) -> None:
        self._unsent = None
        if not unsent.cancelled():
            unsent.result()
            self._on_writable()

    def abort(self) -> None:
        """Stop waiting for the client; ``on_writable`` is not called again."""
        self._on_writable = _ignore
        if self._unsent is not None:
            self._unsent.cancel()
