"""HTTP on a connection, for uvicorn; heads are bounded, refusals have OpenAI's error body."""

from __future__ import annotations

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kvcache_sim.live.refusals import Refusal

#: Longest head of a request, in bytes.
_MOST_HEAD_BYTES = 64 << 10
_LINES = {400: b"400 Bad Request", 431: b"431 Request Header Fields Too Large"}
_HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """A connection; invalid requests and heads without an end are refused and the connection closed."""

    #: Bytes of an unfinished head; None within a body.
    _head_bytes: int | None = 0
    #: True if a request ended in the last received bytes.
    _ended = False

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        if self.transport.is_closing():
            return
        self._ended = False
        super().data_received(data)
        if self._head_bytes is None or self._ended or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self._refuse(Refusal(431, f"the request's head has more than {_MOST_HEAD_BYTES} bytes"))

    def on_headers_complete(self) -> None:
        """End a head."""
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a body; a head may follow."""
        self._head_bytes, self._ended = 0, True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request."""
        self._refuse(Refusal(400, msg))

    def _refuse(self, refusal: Refusal) -> None:
        body = msgspec.json.encode(refusal.body())
        self.transport.write(_HEAD % (_LINES[refusal.status], len(body)) + body)
        self.transport.close()
