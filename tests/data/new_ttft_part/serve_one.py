"""Prints the metrics of a live fleet that has answered one request of four tokens, on a clock that does not wait."""

import asyncio
import sys

sys.path[:0] = ["tests", "tests/live"]

from kvcache_sim.extras.live.fleet import Prompt  # noqa: E402
from kvcache_sim.extras.live.metrics import Metrics  # noqa: E402
from live_fleets import fleet_of, wait  # noqa: E402


async def main() -> None:
    fleet = fleet_of(["replica.client_offset=50ms"])
    metrics = Metrics(fleet, "m", 8192)
    fleet.witnesses.append(metrics)
    fleet.start()
    fleet.submit(Prompt(list(range(64)), [1] * 4))
    wait(fleet, 10**9)
    print(metrics.text().decode())


asyncio.run(main())
