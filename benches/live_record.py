"""Latency added by `kvsim record`: requests through the proxy and requests straight to the same upstream.

The upstream answers each request at once with a small stream, in a process of its own; client, proxy and
upstream share the machine. Requests go out at a fixed rate, alternately straight and through the proxy.
Prints percentiles of both, from the first byte sent to the last received, and their differences.
"""

from __future__ import annotations

import argparse
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

BODY = b'{"prompt": "' + b"word by word " * 100 + b'", "max_tokens": 3, "stream": true}'
ASKED = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
EVENT = b'data: {"choices":[{"index":0,"text":"x","finish_reason":null}]}\n\n'
PIECES = EVENT * 3 + b"data: [DONE]\n\n"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(PIECES) + PIECES
)


def upstream() -> None:
    """Answer every request at once until killed."""
    import asyncio

    import uvloop

    class Answering(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.due = transport, len(ASKED)

        def data_received(self, data: bytes) -> None:
            self.due -= len(data)
            if self.due == 0:
                self.due = len(ASKED)
                self.transport.write(ANSWER)  # type: ignore[attr-defined]

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        print(
            "listening",
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1",
            file=sys.stderr,
            flush=True,
        )
        await server.serve_forever()

    uvloop.run(serve())


def one_ns(connection: socket.socket) -> int:
    """Return the duration of one exchange."""
    began = time.perf_counter_ns()
    connection.sendall(ASKED)
    left = len(ANSWER)
    while left:
        left -= len(connection.recv(left))
    return time.perf_counter_ns() - began


def started(command: list[str]) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    return process, int(
        next(m[1] for line in process.stderr if (m := re.search(r"127.0.0.1:(\d+)/v1", line)))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000, help="of each kind")
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--upstream", action="store_true")
    asked = parser.parse_args()
    if asked.upstream:
        upstream()
        return
    with tempfile.TemporaryDirectory() as directory:
        behind, port = started([sys.executable, __file__, "--upstream"])
        record = [sys.executable, "-m", "kvcache_sim", "record", "--upstream", f"http://127.0.0.1:{port}"]
        proxy, proxy_port = started([*record, "--port", "0", "-o", f"{directory}/trace.jsonl"])
        try:
            # Ten connections each, as clients keep them open.
            variants = [
                [socket.create_connection(("127.0.0.1", p)) for _ in range(10)] for p in (port, proxy_port)
            ]
            for connection in (*variants[0], *variants[1]):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one_ns(connection)
            took: list[list[int]] = [[], []]
            began = time.perf_counter()
            for number in range(2 * asked.requests):
                time.sleep(max(began + number / (2 * asked.rate) - time.perf_counter(), 0))
                variant = number % 2
                took[variant].append(one_ns(variants[variant][number // 2 % 10]))
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(10)
            behind.kill()
    straight, through = (sorted(own) for own in took)
    for part in (0.5, 0.9, 0.99):
        at = int(part * (asked.requests - 1))
        a, b = straight[at] / 1e6, through[at] / 1e6
        print(f"p{100 * part:<4.0f} straight {a:.3f} ms  through {b:.3f} ms  added {b - a:.3f} ms")


if __name__ == "__main__":
    main()
