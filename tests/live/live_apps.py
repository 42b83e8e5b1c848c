"""`kvsim serve` without sockets: its ASGI application on a clock that a test sets, and clients that misbehave."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvcache_sim.extras.live.answers import Answers
from kvcache_sim.extras.live.generation import Generations
from kvcache_sim.metrics.run_directory import open_run_directory
from live_fleets import Standing, turns, wait
from support.product.live import Asked, Parts, Serving, application, assembled, live_scenario

MS = 1_000_000
#: A token each 10 ms, whatever is served.
STEADY = (
    "replica.step_time=linear:base=10ms,token=0ns",
    "cache.block_size=16",
    "tiers.gpu.capacity=1000 blocks",
)


class Client:
    """A client as an ASGI server sees it: it may stop reading, hang up, or its writes fail."""

    def __init__(
        self,
        app: Any,
        path: str,
        body: bytes,
        *,
        method: str = "POST",
        host: str = "127.0.0.1",
        pieces: int = 1,
        headers: dict[str, str],
    ) -> None:
        size = -(-len(body) // pieces) or 1
        self._unsent = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        self.status, self.pieces = 0, list[bytes]()
        self.reads, self.left = asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.fails = False
        self.waiting = self.most_waiting = 0
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()],
            "scheme": "http",
            "client": (host, 9),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._unsent:
            piece = self._unsent.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._unsent)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.fails:
            raise ConnectionError("a write that fails")
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        await self.reads.wait()
        self.waiting -= 1
        self.status = message.get("status", self.status)
        if message["type"] == "http.response.body":
            self.pieces.append(message["body"])

    @property
    def json(self) -> Any:
        return json.loads(b"".join(self.pieces))

    @property
    def events(self) -> list[Any]:
        """The events of a stream so far."""
        *whole, rest = b"".join(self.pieces).split(b"\n\n")
        assert rest == b""
        return [json.loads(one.removeprefix(b"data: ")) for one in whole if one != b"data: [DONE]"]

    def text(self, choice: int = 0) -> str:
        """The text of a choice that was streamed so far."""
        said = [own for event in self.events for own in event["choices"] if own["index"] == choice]
        return "".join(own["text"] if "text" in own else own["delta"].get("content", "") for own in said)


class LiveApp:
    def __init__(self, parts: Parts, directory: Path) -> None:
        self.parts, self.fleet, self.directory = parts, parts.fleet, directory
        self.served, self.limits = parts.served, parts.limits
        self.clock = parts.fleet.clock
        self.app = application(parts.served, parts.limits)
        self.fleet.start()

    def bounded(self, window: int, most_tokens: int) -> None:
        """Bound the context and the tokens of a request, before the first one."""
        tokenizer = self.served.generations.tokenizer
        generations = Generations(tokenizer, Answers(tokenizer, 0), window, most_tokens)
        self.app = application(replace(self.served, generations=generations), self.limits)

    def client(self, path: str, body: Any = b"", **options: Any) -> Client:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Client(self.app, path, data, headers=options.pop("headers", {}), **options)

    async def ask(self, path: str, body: Any = b"", **options: Any) -> Client:
        """Send a request and let time pass until it is answered."""
        client = self.client(path, body, **options)
        await turns()
        while not client.task.done():
            wait(self.fleet, 1000 * MS)
            await turns()
        await client.task
        return client

    async def passed(self, ms: float) -> None:
        await turns()
        wait(self.fleet, int(ms * MS))
        await turns()

    def end(self) -> dict[str, Any]:
        """Abort what is open, write the run directory and return its summary."""
        self.fleet.stop()
        wait(self.fleet, 10**6 * MS)
        return self.parts.keeping.end(["serve"])


@contextlib.contextmanager
def live_app(
    directory: Path, overrides: Sequence[str] = (), serving: Serving | None = None, shutdown: Any = None
) -> Iterator[LiveApp]:
    """Serve a scenario; to be entered where a loop runs. The run directory is kept if its run is ended."""
    asked = Asked(None, [*STEADY, *overrides], [])
    with open_run_directory(directory, force=False) as opened:
        scenario = live_scenario(asked, directory)
        yield LiveApp(assembled(scenario, opened, serving or Serving(), Standing(), shutdown), directory)


def live(tmp_path: Path, test: Callable[[LiveApp], Awaitable[Any]], *overrides: str, **options: Any) -> Any:
    """Run a test's coroutine function with an application."""

    async def go() -> Any:
        with live_app(tmp_path / "run", overrides, **options) as app:
            return await test(app)

    return asyncio.run(go())
