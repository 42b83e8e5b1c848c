"""Messages between the supervisor and its workers: JSON texts with their length in front."""

from __future__ import annotations

import json
import os
import struct

_HEADER = struct.Struct(">I")


def send(handle: int, message: object) -> None:
    """Write one message whole; raises ``BrokenPipeError`` when the reader is gone."""
    body = json.dumps(message).encode()
    view = memoryview(_HEADER.pack(len(body)) + body)
    while view:
        view = view[os.write(handle, view) :]


def receive(handle: int) -> object | None:
    """Read one message, waiting for it; None when the writer is gone, even in the middle of a message."""
    header = _read_exactly(handle, _HEADER.size)
    if header is None:
        return None
    body = _read_exactly(handle, _HEADER.unpack(header)[0])
    return None if body is None else json.loads(body)


def _read_exactly(handle: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        piece = os.read(handle, count - len(parts))
        if not piece:
            return None
        parts += piece
    return bytes(parts)
