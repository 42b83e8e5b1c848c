"""HTTP on a connection, for uvicorn; heads and bodies are bounded in bytes and time.

Refusals have OpenAI's error body.
"""

from __future__ import annotations

import asyncio
import re

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kvcache_sim.extras.live.refusals import Refusal

#: Longest head of a request, in bytes.
_MOST_HEAD_BYTES = 64 << 10
#: Seconds from the first byte of a head, or a connection without one, to its end; and of a body.
HEAD_S = 5.0
BODY_S = 60.0
_LINES = {
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    431: b"431 Request Header Fields Too Large",
}
#: A registered name, an IPv4 or an IPv6 address, with a port or without; empty where there is none.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::[0-9]{0,5})?", re.ASCII)
_HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """A connection; invalid requests and heads without an end are refused and the connection closed."""

    #: Bytes of an unfinished head; None within a body.
    _head_bytes: int | None = 0
    #: True if a request ended in the last received bytes.
    _ended = False
    #: The end of the time for the head or body that is being received; None: neither is.
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time for the first head."""
        super().connection_made(transport)
        self._allow(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time."""
        self._allow(None)
        super().connection_lost(exc)

    def _allow(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self.transport.is_closing():
            return
        if self._head_bytes == 0:  # nothing was sent
            self.transport.close()
        else:
            self._refuse(Refusal(408, "the request did not arrive in time"))

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        if self.transport.is_closing():
            return
        self._ended = False
        super().data_received(data)
        if self._head_bytes is None or self._ended or self.transport.is_closing():
            return
        if not self._head_bytes and self._deadline is None:
            self._allow(HEAD_S)
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self._refuse(Refusal(431, f"the request's head has more than {_MOST_HEAD_BYTES} bytes"))

    def on_headers_complete(self) -> None:
        """End a head; one without its one Host is refused (RFC 9112, 3.2)."""
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            self._refuse(Refusal(400, f"a request has one Host header; got {len(hosts)}"))
        elif hosts and not _HOST.fullmatch(hosts[0]):
            self._refuse(Refusal(400, "the Host header is no host with a port"))
        if self.transport.is_closing():
            raise ValueError  # the parser ends
        self._head_bytes = None
        self._allow(BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a body; a head may follow."""
        self._head_bytes, self._ended = 0, True
        self._allow(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request."""
        self._refuse(Refusal(400, msg))

    def _refuse(self, refusal: Refusal) -> None:
        if self.transport.is_closing():  # refused before
            return
        body = msgspec.json.encode(refusal.body())
        self.transport.write(_HEAD % (_LINES[refusal.status], len(body)) + body)
        self.transport.close()
