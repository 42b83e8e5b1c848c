"""Batches of KV events from an engine's sockets, in order; missed batches come from its replay socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import zmq

from kvcache_sim.base.addresses import address_of
from kvcache_sim.base.errors import UsageError
from kvcache_sim.workload.imports.kv_batch import KvBatch, batch_of

_END = (-1).to_bytes(8, "big", signed=True)
#: Longest silence of a replay socket, in seconds.
_REPLAY_S = 2.0


@dataclass(slots=True)
class Source:
    """One engine's endpoint: the number of its last batch, and counts of missed and unreadable batches."""

    endpoint: str
    last: int = -1
    missed: int = 0
    unreadable: int = 0
    restarts: int = 0
    waiting: list[tuple[int, bytes]] = field(default_factory=list)


def _refuse_unusable(option: str, endpoint: str) -> None:
    """Raise UsageError for an endpoint at which no engine publishes: ZeroMQ waits there without end."""
    scheme, _, path = endpoint.partition("://")
    found = address_of(endpoint)
    is_tcp = found is not None and found.scheme == "tcp" and found.port > 0
    if not (is_tcp or (scheme == "ipc" and path)):
        raise UsageError("no endpoint", option, endpoint, "tcp://HOST:PORT or ipc://FILE")


class Feed:
    """Subscribes to engines' endpoints; UsageError for an invalid endpoint."""

    def __init__(self, endpoints: list[str], replays: list[str]) -> None:
        if len(replays) not in (0, len(endpoints)):
            got = f"{len(replays)} for {len(endpoints)}"
            raise UsageError("one for each --kv-events, or none", "--kv-events-replay", got)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._sockets: dict[zmq.Socket[bytes], Source] = {}
        for endpoint in endpoints:
            _refuse_unusable("--kv-events", endpoint)
        for endpoint in replays:
            _refuse_unusable("--kv-events-replay", endpoint)
        for endpoint in endpoints:
            socket = self._connected(zmq.SUB, endpoint)
            socket.set_hwm(0)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            self._sockets[socket] = Source(endpoint)
            self._poller.register(socket, zmq.POLLIN)
        for source, replay in zip(self.sources, replays, strict=False):
            source.waiting = self._replayed(replay)

    def _connected(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise UsageError("no endpoint", "--kv-events", endpoint, "tcp://HOST:PORT", str(error)) from None
        return socket

    @property
    def sources(self) -> list[Source]:
        """Return every source, in the order of the endpoints."""
        return list(self._sockets.values())

    def _replayed(self, endpoint: str) -> list[tuple[int, bytes]]:
        """Return the batches that an engine's replay socket still has; other batches are missing."""
        socket, found = self._connected(zmq.DEALER, endpoint), list[tuple[int, bytes]]()
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        deadline = time.monotonic() + _REPLAY_S
        while (left := deadline - time.monotonic()) > 0 and socket.poll(int(left * 1000) + 1):
            *_, number, payload = socket.recv_multipart()
            if number == _END:
                break
            found.append((int.from_bytes(number, "big"), payload))
            deadline = time.monotonic() + _REPLAY_S
        socket.close()
        return found

    def take(self, seconds: float) -> Iterator[tuple[Source, KvBatch]]:
        """Yield the batches that arrive within some seconds, at least those already received."""
        for source in self.sources:
            waiting, source.waiting = source.waiting, []
            for number, payload in waiting:
                yield from self._batch(source, number, payload)
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            ready = self._poller.poll(max(int(left * 1000), 0))
            for socket, _ in ready:
                source = self._sockets[socket]
                frames = socket.recv_multipart()
                if len(frames) == 3 and len(frames[1]) == 8:
                    yield from self._batch(source, int.from_bytes(frames[1], "big"), frames[2])
                else:
                    source.unreadable += 1
            if left <= 0:
                return

    def _batch(self, source: Source, number: int, payload: bytes) -> Iterator[tuple[Source, KvBatch]]:
        if number <= source.last:
            if number:
                return  # it was replayed
            source.restarts += 1
        elif source.last >= 0:
            source.missed += number - source.last - 1
        source.last = number
        try:
            batch = batch_of(msgspec.msgpack.decode(payload))
        except (msgspec.DecodeError, ValueError, RecursionError):
            source.unreadable += 1
            return
        yield source, batch

    def close(self) -> None:
        """Close every socket."""
        for socket in self._sockets:
            socket.close()
        self._context.term()
