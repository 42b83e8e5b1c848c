"""Live runs on a simulated clock: clients that stream, read slowly and hang up, resets, jumps of the clock."""

import asyncio
import contextlib
import gc
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.scenario.load import scenario_to_repeat
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate
from support.agreement import beyond_spec, by_spec
from support.live_scenarios import drawn as drawn_settings
from support.product.live import Asked, Parts, Serving, WallClock, application, assembled, live_scenario

from vopr.faulty import FaultyDisk, Killed, SimulatedLoop
from vopr.finding import oracle
from vopr.shrink import without_parts


class Client(NamedTuple):
    """A request: its time, its body, its path, and how its client behaves."""

    at_s: float
    body: dict[str, Any]
    path: str = "/v1/completions"
    #: Seconds until it hangs up; None: it stays.
    patience_s: float | None = None
    #: Seconds for each of its reads.
    read_s: float = 0.0


class Live(NamedTuple):
    """A live run: the settings, the clients, the share of clock readings that jump, and the disk's fault."""

    seed: int
    settings: tuple[str, ...]
    clients: tuple[Client, ...]
    jumps: float
    #: Change of a file that ends the process, and that finds the disk full; 0: none.
    kill_at: int = 0
    full_at: int = 0


def draw(seed: int) -> Live:
    """Return a random live run."""
    pick = random.Random(f"live {seed}")
    settings = [own for own in drawn_settings(seed) if not own.startswith("trace.")]
    at_s, clients = 0.0, []
    chats: list[list[int]] = [[], [], []]
    for _ in range(pick.randint(3, 25)):
        at_s += pick.choice([0.0, 0.0001, 0.02, 0.3]) * pick.random()
        chat = pick.choice(chats)
        chat += [pick.randrange(200) for _ in range(pick.choice([1, 15, 16, 17, 150]))]
        body = {"prompt": list(chat[-600:]), "max_tokens": pick.choice([1, 2, 30, 80])}
        body |= {"stream": pick.random() < 0.6, "n": pick.choice([1, 1, 1, 3])}
        patience_s = pick.choice([None, None, 0.0, 0.001, pick.random() * 2])
        clients.append(Client(at_s, body, "/v1/completions", patience_s, pick.choice([0.0, 0.0, 0.05, 3.0])))
        if pick.random() < 0.1:
            clients.append(Client(at_s, {}, pick.choice(["/reset_prefix_cache", "/metrics", "/load"])))
    fault = pick.choice([{}, {}, {"kill_at": pick.randint(1, 40)}, {"full_at": pick.randint(1, 40)}])
    return Live(seed, tuple(settings), tuple(clients), pick.choice([0.0, 0.02, 0.2]), **fault)


def run(case: Live, folder: Path) -> str:
    """Serve a live run twice, which must be equal, and once more on a faulty disk; replay its arrivals."""
    try:
        with oracle("the live run", (UsageError,)):
            first = _serve(case, folder / "first", LOCAL_DISK)
    except UsageError:
        return "refused"
    with oracle("I11: the races replay"):
        assert _serve(case, folder / "again", LOCAL_DISK) == first
    with oracle("a replay of the arrivals"):
        stored = load_run(folder / "first")
        scenario = scenario_to_repeat(stored.scenario, folder / "first", False)
        trace = read_requests(scenario)
        if not any(client.path == "/reset_prefix_cache" for client in case.clients):
            digest = stored.manifest["digest"]
            for again in _replays(scenario, trace):
                assert (again.digest_events, again.digest_results) == (digest["events"], digest["results"])
    if not (case.kill_at or case.full_at):
        return "replayed"
    with oracle("a run on a faulty disk"):
        target = folder / "faulty"
        try:
            _serve(case, target, FaultyDisk(case.kill_at, case.full_at))
        except (Killed, InputOutputError, OSError):
            assert not target.exists() or load_run(target)
        _collect()
        if not target.exists():
            assert _serve(case, target, LOCAL_DISK) == first
    return "replayed, faulty disk"


def _collect() -> None:
    """Collect what a killed process left, whose coroutines would else end within the loop of a later case."""
    shown, sys.unraisablehook = sys.unraisablehook, lambda _: None
    gc.collect()
    sys.unraisablehook = shown


def _replays(scenario: Any, trace: Any) -> Iterator[Any]:
    yield simulate(scenario.settings, trace)
    if not beyond_spec(scenario.settings):
        yield by_spec(scenario.settings, trace, "spec")


def _serve(case: Live, target: Path, disk: Disk) -> tuple[list[object], dict[str, str]]:
    """Return what each client received, and the run's digests."""
    scenario = live_scenario(Asked(None, case.settings, []), target)
    loop = SimulatedLoop(case.seed, case.jumps)
    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        open_run_directory(target, force=False, disk=disk) as directory,
    ):
        clock = WallClock(1.0, loop.wall_ns)
        parts = assembled(scenario, directory, Serving(), clock, lambda: None)
        received = runner.run(_clients(case, parts, disk is LOCAL_DISK))
        if parts.fleet.broken is not None:
            raise parts.fleet.broken
        assert not loop.errors, loop.errors[0]
        # whose client hung up within a step leaves at the end of that step, which the end of the run waits for
        parts.keeping.end(["serve"])
        assert not parts.fleet.open, "I1: a request is open after the end"
    return received, load_run(target).manifest["digest"]


async def _clients(case: Live, parts: Parts, is_sound: bool) -> list[object]:
    parts.fleet.start()
    served = application(parts.served, parts.limits)
    tasks = [asyncio.create_task(_client(served, client, is_sound)) for client in case.clients]
    received = await asyncio.gather(*tasks)
    parts.fleet.stop()
    return list(received)


async def _client(served: Any, client: Client, is_sound: bool) -> object:
    """Return the status and the bytes that a client received, or that it hung up."""
    await asyncio.sleep(client.at_s)
    body = [{"type": "http.request", "body": json.dumps(client.body).encode(), "more_body": False}]
    got: list[bytes] = []
    status = [0]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await asyncio.sleep(10**6 if client.patience_s is None else client.patience_s)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if client.read_s:
            await asyncio.sleep(client.read_s)
        status[0] = message.get("status", status[0])
        got.append(message.get("body", b""))

    method = "GET" if client.path in ("/metrics", "/load") else "POST"
    scope = {
        "type": "http",
        "method": method,
        "path": client.path,
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "scheme": "http",
        "root_path": "",
        "raw_path": client.path.encode(),
    }
    with contextlib.nullcontext() if is_sound else contextlib.suppress(OSError):
        await served(scope, receive, send)
    text = b"".join(got).decode()
    if not is_sound:
        return None
    assert status[0] < 500, text[:300]
    if client.path != "/v1/completions" or status[0] != 200 or client.patience_s is not None:
        return status[0], len(text) if client.path == "/v1/completions" else 0
    choices, tokens = client.body["n"], client.body["max_tokens"]
    if not client.body["stream"]:
        assert json.loads(text)["usage"]["completion_tokens"] == choices * tokens
    else:
        assert text.endswith("data: [DONE]\n\n"), text[-200:]
    return status[0], len(text)


def smaller(case: Live) -> Iterator[Live]:
    """Yield a run without some clients, without settings, without jumps or faults."""
    for clients in without_parts(case.clients):
        yield case._replace(clients=tuple(clients))
    for settings in without_parts(case.settings):
        yield case._replace(settings=tuple(settings))
    if case.jumps:
        yield case._replace(jumps=0.0)
    if case.kill_at or case.full_at:
        yield case._replace(kill_at=0, full_at=0)


def shown(case: Live, folder: Path) -> str:
    """Return the settings, the clients and the faults of a live run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "live.json").write_text(json.dumps(case._asdict(), indent=1))
    settings = " ".join(f"--set '{own}'" for own in case.settings)
    return f"kvsim serve {settings}\nclients, jumps of the clock and faults: {folder / 'live.json'}"
