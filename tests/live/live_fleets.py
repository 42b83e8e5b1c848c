"""A live fleet on a clock that a test sets, without sockets."""

import asyncio
from collections.abc import Sequence

from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.scenario.load import load_scenario
from support.product.live import BlockNumbers, LiveSimulation, WallClock


class Standing(WallClock):
    """A clock that stands where a test puts it."""

    at_ns = 0

    def now_ns(self) -> int:
        return self.at_ns


def fleet_of(overrides: Sequence[str], keep_tokens: bool = False) -> Fleet:
    common = ["replica.step_time=h100-llama-3.1-8b-tp1", "trace.path=unused", "trace.block_size=16"]
    scenario = load_scenario(None, ["cache.block_size=16", *common, *overrides])
    return Fleet(
        lambda fleet: LiveSimulation(scenario.settings, fleet), Standing(), BlockNumbers(16, keep_tokens)
    )


def wait(fleet: Fleet, ns: int) -> None:
    until = fleet.clock.at_ns + ns
    while (due := fleet.simulation.engine.next_ns) is not None and due <= until:
        fleet.clock.at_ns = due
        fleet.advance()
    fleet.clock.at_ns = until


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
