"""Print the memory (kB) of a live run after each of some counts of requests: ``live_memory.py same|new COUNT...``."""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from kvcache_sim.extras.live.fleet import Prompt
from kvcache_sim.metrics.run_directory import open_run_directory
from support.product.live import Asked, Serving, WallClock, assembled, live_scenario

SETTINGS = [
    "tiers.gpu.capacity=100 blocks",
    "cache.block_size=16",
    "replica.step_time=linear:base=1us,token=1ns",
]
MS = 1_000_000


def resident_kb() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


async def served(folder: Path, is_new: bool, counts: list[int]) -> None:
    """Serve a request each millisecond of a clock that stands meanwhile, each done before the next comes."""
    now_ns = 0
    scenario = live_scenario(Asked(None, SETTINGS, []), folder)
    with open_run_directory(folder, force=False) as directory:
        fleet = assembled(scenario, directory, Serving(), WallClock(1.0, lambda: now_ns), lambda: None).fleet
        fleet.start()
        for number in range(1, counts[-1] + 1):
            now_ns += MS
            fleet.submit(Prompt([number * is_new, *range(39)], [1]))
            fleet.advance()
            if number % 64 == 0:
                await asyncio.sleep(0)  # timers that were set again leave
            if number in counts:
                print(resident_kb(), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as own:
        asyncio.run(served(Path(own) / "run", sys.argv[1] == "new", [*map(int, sys.argv[2:])]))
