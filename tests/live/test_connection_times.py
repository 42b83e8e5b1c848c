"""Times that a connection may take and bytes that a head may have, on a loop whose time a test sets."""

from dataclasses import dataclass

import pytest

pytest.importorskip("uvicorn")

import uvicorn
from kvcache_sim.extras.live import protocol
from uvicorn.server import ServerState


@dataclass
class Timer:
    at: float
    call: object
    on: bool = True

    def cancel(self):
        self.on = False


class Task:
    """A request that no server takes."""

    def add_done_callback(self, call):
        pass


class Loop:
    def __init__(self):
        self.now, self.timers = 0.0, []

    def call_later(self, seconds, call):
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def create_task(self, coroutine, **_):
        coroutine.close()
        return Task()

    def run_to(self, at):
        while due := [t for t in self.timers if t.on and t.at <= at]:
            first = min(due, key=lambda t: t.at)
            self.now, first.on = first.at, False
            first.call()
        self.now = at


class Transport:
    """Bytes written, and the time at which it was closed."""

    def __init__(self, loop):
        self.loop, self.written, self.closed_at = loop, b"", None

    def close(self):
        self.closed_at = self.loop.now if self.closed_at is None else self.closed_at

    def is_closing(self):
        return self.closed_at is not None

    def write(self, data):
        self.written += data

    def get_extra_info(self, name, default=None):
        return default

    def pause_reading(self):
        pass

    resume_reading = pause_reading


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
SERVED = None  # the answer to the request has been written


@pytest.mark.parametrize(
    ("sent", "closed_at", "status"),
    [
        ([], 5, None),
        ([(4, HEAD[:9])], 5, 408),
        ([(1, HEAD[:9]), (4, HEAD[9:20])], 5, 408),
        ([(4, HEAD)], 64, 408),
        ([(4, HEAD + b"ab"), (40, b"c")], 64, 408),
        ([(4, HEAD + b"abcd")], None, None),
        ([(4, HEAD), (60, b"abcd"), (61, SERVED)], 61 + 75, None),
        ([(0, HEAD + b"abcd"), (1, SERVED), (30, HEAD[:5])], 35, 408),
        ([(0, HEAD + b"abcd"), (1, SERVED), (30, HEAD), (31, b"abcd"), (32, SERVED)], 32 + 75, None),
        ([(0, HEAD + b"abcd"), (1, SERVED), (30, HEAD), (31, b"abc")], 90, 408),
        ([(1, HEAD[:17] + b"a: b\r\n" * 8000), (2, b"a: b\r\n" * 3000)], 2, 431),
        ([(1, HEAD[:17] + b"a: b\r\n" * 8000), (2, b"a: b\r\n" * 2000)], 5, 408),
        ([(1, HEAD[:-2] + b"a: b\r\n" * 8000 + b"\r\n"), (2, b"abcd")], None, None),
        ([(1, b"hello\r\n\r\n")], 1, 400),
    ],
)
def test_a_head_has_five_seconds_and_a_body_a_minute(sent, closed_at, status):
    loop = Loop()
    config = uvicorn.Config(
        lambda: None, http=protocol.Connection, timeout_keep_alive=75, log_level="critical"
    )
    state, transport = ServerState(), Transport(loop)
    connection = protocol.Connection(config, state, {}, loop)
    connection.connection_made(transport)
    assert state.connections == {connection}
    for at, data in sent:
        loop.run_to(at)
        if data is SERVED:
            connection.cycle.response_complete = True
            connection.on_response_complete()
        else:
            connection.data_received(data)
    loop.run_to(1000)
    assert transport.closed_at == closed_at
    assert transport.written[:13] == (b"HTTP/1.1 %d " % status if status else b"")
    connection.connection_lost(None)
    assert state.connections == set()
    assert not any(timer.on for timer in loop.timers)
