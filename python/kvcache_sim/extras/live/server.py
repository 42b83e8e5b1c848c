"""A fleet on its ports until a signal, then its run directory."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.stop_signals import stop_signals
from kvcache_sim.extras.live.app import Limits, Served, application
from kvcache_sim.extras.live.protocol import Connection

#: Seconds for answers to finish after a signal.
_GRACE_S = 2
#: Most connections that wait to be accepted.
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports to listen on: the first port, and optionally one port per machine from there on."""

    host: str
    port: int
    machines: int
    per_machine: bool

    def each(self) -> list[tuple[int, int | None]]:
        """Return each port with its machine, None for any."""
        if not self.per_machine:
            return [(self.port, None)]
        return [(self.port + machine if self.port else 0, machine) for machine in range(self.machines)]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to ``serve``: the directory is written after them."""
        yield


async def serve(
    served: Served, limits: Limits, ports: Ports, stop: asyncio.Event, ready: Callable[[list[str]], None]
) -> None:
    """Listen until ``stop`` is set or a signal arrives; ``ready`` receives the addresses.

    UsageError if a port is not available. Open requests are aborted at the end.
    """
    loop = asyncio.get_running_loop()
    _raise_open_files()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    sockets = [(_listening(ports.host, port), machine) for port, machine in ports.each()]
    servers, tasks = [], []
    for listening, machine in sockets:
        config = uvicorn.Config(
            application(served, limits, machine),
            http=Connection,
            ws="none",
            lifespan="off",
            log_level="critical",
            access_log=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_GRACE_S,
            server_header=False,
            backlog=_BACKLOG,
        )
        server = _Server(config)
        servers.append(server)
        tasks.append(asyncio.create_task(server.serve([listening])))
    served.fleet.start()
    ready([f"http://{ports.host}:{listening.getsockname()[1]}" for listening, _ in sockets])
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    served.fleet.stop()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)


def _raise_open_files() -> None:
    """Raise the limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError("cannot listen there", "--host, --port", f"{host}:{port}", hint=reason) from None
    opened.listen(_BACKLOG)  # clients may connect as soon as the address is printed
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened
