"""Requests and answers as text, kept on request: one line each, for ``kvsim trace import``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.base.output import refuse_existing
from kvcache_sim.extras.live.parsing import Completion
from kvcache_sim.extras.live.record.observed import Observed


class Texts:
    """Appends requests and answers as they end; OutputExistsError if the file exists without ``force``."""

    def __init__(self, path: Path, force: bool) -> None:
        refuse_existing(path, force)
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise InputOutputError("cannot be written", str(path), error.strerror or "") from None
        #: Offset from the clock of arrivals to ns since 1970.
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    def add(self, o: Observed) -> None:
        """Write a finished request, refused requests with their status."""
        try:
            body: Any = msgspec.json.decode(bytes(o.body))
        except msgspec.DecodeError:
            body = None
        row: dict[str, Any] = {"time": self._epoch_ns + o.arrival_ns, "status": o.status, "request": body}
        if o.tokens_ns:
            row["first_token_time"] = self._epoch_ns + o.tokens_ns[0]
        choice = (
            {"text": "".join(o.answer.said)} if o.kind is Completion else {"message": o.answer.as_message()}
        )
        row["response"] = {**(o.answer.whole or {"choices": [choice]}), "usage": o.answer.usage}
        self._file.write(msgspec.json.encode(row) + b"\n")

    def flush(self) -> None:
        """Flush the file to disk."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
