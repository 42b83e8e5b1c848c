"""A served scenario: fleet, answers, metrics and ports, and the run directory at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.live.answers import Answers
from kvcache_sim.extras.live.app import Limits, Served
from kvcache_sim.extras.live.clock import WallClock, settle
from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.extras.live.generation import Generations
from kvcache_sim.extras.live.metrics import Metrics
from kvcache_sim.extras.live.prompts import BlockNumbers
from kvcache_sim.extras.live.run_output import Keeping
from kvcache_sim.extras.live.server import Ports, serve
from kvcache_sim.extras.live.tokenizer import tokenizer_of
from kvcache_sim.metrics.run_directory import RunDirectory
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.simulation.live import LiveSimulation
from kvcache_sim.workload.prompts.body import seen_lines

if TYPE_CHECKING:
    from kvcache_sim.extras.live.events.announcer import Announcer, EventSettings
    from kvcache_sim.extras.live.record.texts import Texts

#: Context window (tokens) of an unbounded GPU.
_MOST_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Serving:
    """Options of serving; none changes the results of a replay of the arrivals."""

    host: str = "127.0.0.1"
    port: int = 0
    port_per_machine: bool = False
    speed: float = 1.0
    tokenizer: Path | None = None
    model_names: tuple[str, ...] = ()
    api_key: str = ""
    reports_cached: bool = True
    body_bytes: int = 1 << 25
    requests: int = 4096
    shutdown_route: bool = False
    #: File of requests and answers; None: not kept.
    texts: Texts | None = None
    #: KV events, None: none are published.
    events: EventSettings | None = None


def serve_fleet(
    scenario: Scenario,
    directory: RunDirectory,
    serving: Serving,
    argv: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Serve until a signal arrives, write the run into ``directory`` and return its summary.

    Raises UsageError for a scenario that cannot be served and a port that is not available.
    """
    if scenario.model.replica.instant:
        raise UsageError("an instant replica has no time to serve in", "replica.instant", "true", "false")
    return uvloop.run(_served(scenario, directory, serving, argv, say))


@dataclass(frozen=True, slots=True)
class Parts:
    """A fleet with what serves its clients and what is written of it; nothing listens yet."""

    served: Served
    limits: Limits
    fleet: Fleet
    keeping: Keeping
    announcer: Announcer | None


def assembled(
    scenario: Scenario,
    directory: RunDirectory,
    serving: Serving,
    clock: WallClock,
    shutdown: Callable[[], None],
) -> Parts:
    """Return the parts of a server on a clock; ``shutdown`` is for its route, if there is one."""
    settings = scenario.settings
    blocks = BlockNumbers(settings.cache.block_size_tokens, keep_tokens=serving.events is not None)
    fleet = Fleet(lambda listener: LiveSimulation(settings, listener), clock, blocks)
    keeping = Keeping(scenario, directory, fleet)
    tokenizer, window = tokenizer_of(serving.tokenizer), _window(fleet)
    names = serving.model_names or (_model_name(scenario),)
    metrics = Metrics(fleet, names[0], window)
    fleet.witnesses.append(metrics)
    fleet.gap = metrics.gaps.add
    announcer = _announcer(fleet, serving.events)
    generations = Generations(tokenizer, Answers(tokenizer, settings.seed), window)
    said = serving.reports_cached, serving.texts
    served = Served(
        names, fleet, generations, metrics.text, *said, shutdown if serving.shutdown_route else None
    )
    limits = Limits(serving.body_bytes, serving.requests, serving.api_key)
    return Parts(served, limits, fleet, keeping, announcer)


async def _served(
    scenario: Scenario,
    directory: RunDirectory,
    serving: Serving,
    argv: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    stop = asyncio.Event()
    parts = assembled(scenario, directory, serving, WallClock(serving.speed), stop.set)
    served, fleet = parts.served, parts.fleet
    routed = len(fleet.simulation.cluster.pools.routed)
    ports = Ports(serving.host, serving.port, routed, serving.port_per_machine)

    def ready(addresses: list[str]) -> None:
        say(f"tokenizer  {served.generations.tokenizer.name}")
        for address in addresses:
            window = served.generations.max_model_len
            say(f"listening  {address}/v1  model {served.names[0]}, {window} tokens of context")
        settle()

    await serve(served, parts.limits, ports, stop, ready)
    if serving.texts is not None:
        serving.texts.close()
    summary = parts.keeping.end(argv)
    if fleet.lags.tokens:
        say(f"lag        {fleet.lags.text}")
    for line in seen_lines(served.generations.seen):
        say(f"prompts    {line}")
    if parts.announcer is not None:
        parts.announcer.close()
    return summary


def _announcer(fleet: Fleet, settings: EventSettings | None) -> Announcer | None:
    if settings is None:
        return None
    from kvcache_sim.extras.live.events.announcer import Announcer

    announcer = Announcer(fleet, settings)
    fleet.witnesses.append(announcer)
    announcer.start()
    return announcer


def _window(fleet: Fleet) -> int:
    """Return the most tokens of prompt and answer that fit on every machine."""
    replicas = fleet.simulation.replicas
    windows = [replica.settings.max_model_len for replica in replicas]
    block = replicas[0].cache.block_size_tokens
    low, high = 1, min([window for window in windows if window is not None], default=_MOST_TOKENS)
    while low < high:  # the largest number of tokens that fits an empty GPU
        middle = (low + high + 1) // 2
        fits = all(replica.can_ever_hold(middle) for replica in replicas)
        low, high = (middle, high) if fits else (low, middle - 1)
    return max(low, block)


def _model_name(scenario: Scenario) -> str:
    model = scenario.resolved.get("model")
    return model if isinstance(model, str) else scenario.model.name
