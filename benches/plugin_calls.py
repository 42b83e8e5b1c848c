"""Cost of a plug-in of each kind in a native run, compared with a built-in policy that decides the same.

    python benches/plugin_calls.py [--requests 2000] [--rounds 5]

The scenario is the quickstart with smaller tiers. Each row runs a scenario with the built-in policy and with
a plug-in of the same rule, in turns. It shows the minimum CPU time of each without start-up, their ratio, the
calls of the plug-in, and CPU time per call in us, which includes the policy's own line or two.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate

ROOT = Path(__file__).resolve().parents[1]

OWN = """
class Arrived:
    def key(self, waiting):
        return (waiting.arrival_ns,)

class All:
    def kept_blocks(self, finished):
        return finished.blocks

class Always:
    def reuse(self, plan):
        return plan.end

class Queued:
    occasions = ("queued",)

    def blocks(self, candidate):
        return candidate.blocks

class Through:
    writes_back, delays_step = True, False

    def __init__(self, upper, settings):
        self.at_commit = upper == 0

    def committed(self, store, lease, blocks, now_ns):
        return store.write_through(lease, *blocks, now_ns)

    def used(self, store, lease, now_ns):
        return None

    def arrived(self, store, move, now_ns):
        return store.write_on(move, now_ns)

class Emptiest:
    def choose(self, sending, channels):
        return min(channels, key=lambda name: channels[name].wait_ns(sending.now_ns))
"""
SMALL = ["tiers.gpu.capacity=8GiB", "tiers.cpu.capacity=16GiB", "tiers.disk.capacity=64GiB"]
RAILS = [
    "channels.left={bandwidth: 20GB/s, edges: [cpu->gpu, gpu->cpu]}",
    "channels.right={bandwidth: 20GB/s, edges: [cpu->gpu, gpu->cpu]}",
]
#: Kind → settings of both, the setting of the built-in policy, and that of the plug-in.
KINDS = {
    "queue order": ([], "replica.queue_order=fcfs", "replica.queue_order={own}:Arrived"),
    "admission": ([], "cache.admission=all", "cache.admission={own}:All"),
    "fetch": ([], "fetch.policy=always", "fetch.policy={own}:Always"),
    "prefetch": ([], "prefetch.policy=queued", "prefetch.policy={own}:Queued"),
    "write": ([], "write.policy=through", "write.policy={own}:Through"),
    "channel choice": (RAILS, "channel_choice=emptiest", "channel_choice={own}:Emptiest"),
}


def timed(requests: int, overrides: list[str]) -> tuple[float, Run]:
    """Return the CPU seconds of one run without loading, and the run."""
    settings = [f"workload.requests={requests}", *SMALL, *overrides]
    scenario = load_scenario(ROOT / "scenarios" / "quickstart.yaml", settings)
    trace = read_requests(scenario)
    began = time.process_time()
    run = simulate(scenario.settings, trace)
    return time.process_time() - began, run


def main() -> None:
    """Print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    print(f"{'kind':16}{'built in':>10}{'plug-in':>10}{'ratio':>8}{'calls':>9}{'us a call':>11}")
    with tempfile.TemporaryDirectory() as index:
        own = Path(index) / "own.py"
        own.write_text(OWN)
        for kind, (common, built_in, plugin) in KINDS.items():
            least = [float("inf"), float("inf")]
            runs = {}
            for _ in range(asked.rounds):
                for n, setting in enumerate((built_in, plugin.format(own=own))):
                    seconds, runs[n] = timed(asked.requests, [*common, setting])
                    least[n] = min(least[n], seconds)
            if runs[0].digest_results != runs[1].digest_results or runs[1].engine.name != "native":
                sys.exit(f"{kind}: the plug-in does not decide as the built-in policy, or not in the core")
            calls = sum(use.calls for use in runs[1].plugins)
            call_us = (least[1] - least[0]) * 1e6 / calls
            ratio = least[1] / least[0]
            print(f"{kind:16}{least[0]:10.3f}{least[1]:10.3f}{ratio:8.2f}{calls:9}{call_us:11.2f}")


if __name__ == "__main__":
    main()
