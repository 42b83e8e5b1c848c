"""Batches of KV events on a ZMQ socket as vLLM publishes them, with a socket that replays batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import zmq

from kvcache_sim.base.errors import UsageError

_MOST_PORT = 65_535
_END = (-1).to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A machine's endpoint: sockets, topic, and number of batches kept for replays."""

    events: str
    replay: str = ""
    topic: str = ""
    buffer_steps: int = 10_000
    hwm: int = 100_000

    def of_machine(self, machine: int) -> Endpoint:
        """Return the endpoint of one machine: the next tcp port for each machine, as for vLLM's ranks."""
        return Endpoint(
            _further(self.events, machine),
            _further(self.replay, machine) if self.replay else "",
            self.topic,
            self.buffer_steps,
            self.hwm,
        )


def _further(endpoint: str, machine: int) -> str:
    address, _, port = endpoint.rpartition(":")
    if endpoint.startswith("tcp://") and port.isdigit():
        machine_port = int(port) + machine if int(port) else 0
        if machine_port > _MOST_PORT:
            raise UsageError("no such port", "--kv-events", endpoint, f"at most {_MOST_PORT}")
        return f"{address}:{machine_port}"
    return f"{endpoint}_dp{machine}" if machine else endpoint


class Publisher:
    """One machine's socket: frames are topic, sequence number (8 bytes, big-endian, from 0) and payload.

    A late subscriber misses earlier batches, unless it uses the replay socket (``serve_replay``).
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._events = context.socket(zmq.PUB)
        self._events.set_hwm(endpoint.hwm)
        self._events.setsockopt(zmq.LINGER, 500)
        _bind(self._events, endpoint.events)
        self._replay: zmq.Socket[bytes] | None = None
        if endpoint.replay:
            self._replay = context.socket(zmq.ROUTER)
            self._replay.setsockopt(zmq.LINGER, 500)
            _bind(self._replay, endpoint.replay)
        self._topic = endpoint.topic.encode()
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=endpoint.buffer_steps)
        self.published = 0

    def publish(self, payload: bytes) -> None:
        """Send a batch; never waits: a slow reader loses batches, as with the engine."""
        number, self.published = self.published, self.published + 1
        self._buffer.append((number, payload))
        self._events.send_multipart([self._topic, number.to_bytes(8, "big"), payload], zmq.NOBLOCK)

    def serve_replay(self) -> None:
        """Answer requests on the replay socket: every kept batch from a number on, then the end."""
        if self._replay is None:
            return
        while self._replay.poll(0):
            asked = self._replay.recv_multipart()
            if len(asked) != 3 or len(asked[2]) != 8:
                continue
            client, start = asked[0], int.from_bytes(asked[2], "big")
            for number, payload in self._buffer:
                if number >= start:
                    frames = [client, b"", self._topic, number.to_bytes(8, "big"), payload]
                    self._replay.send_multipart(frames, zmq.NOBLOCK)
            self._replay.send_multipart([client, b"", b"", _END, b""], zmq.NOBLOCK)

    def close(self) -> None:
        """Send the remaining batches and close both sockets."""
        self._events.close()
        if self._replay is not None:
            self._replay.close()


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise UsageError("cannot publish there", "--kv-events", endpoint, hint=str(error)) from None
