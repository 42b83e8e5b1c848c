"""Compare whole runs with Dynamo's offline replay of a trace, in turn: minimum CPU seconds, peak memory.

    pip install --no-deps --target DYNAMO ai-dynamo ai-dynamo-runtime python benches/compare_dynamo.py TRACE
    DYNAMO [--rounds 5]

Both use blocks of 512 tokens, steps of 8,192 tokens and 256 sequences; their step times differ. Dynamo's own
process writes no files; kvsim writes its run directory.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import NamedTuple

_REPLAY = """
import sys
from dynamo.replay import run_trace_replay
trace, workers, router, blocks = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
engine = {"num_gpu_blocks": blocks, "block_size": 512, "max_num_seqs": 256, "max_num_batched_tokens": 8192,
          "enable_prefix_caching": True}
run_trace_replay([trace], extra_engine_args={"engine": engine}, num_workers=workers, router_mode=router,
                 trace_block_size=512)
"""


class Fleet(NamedTuple):
    """A row: number of machines, blocks of each, and the router of each simulator."""

    machines: int
    blocks: int
    theirs: str
    ours: str


FLEETS = (
    Fleet(1, 16_384, "round_robin", "round-robin"),
    Fleet(4, 16_384, "kv_router", "longest-prefix"),
    Fleet(16, 4_096, "kv_router", "prefill-cost"),
)


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return a process's CPU seconds and peak MiB; raises RuntimeError if it fails."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    process = os.posix_spawn(command[0], command, {**os.environ, **environment}, file_actions=quiet)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"status {status}: {' '.join(command)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))


def main() -> None:
    """Print a row for each fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("dynamo", help="folder that its packages were installed to")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"{'CPU s':12} {'Dynamo':>8} {'here':>8} {'times':>7} {'MiB':>8} {'MiB':>8}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kvsim-bench-") as directory:
        for fleet in FLEETS:
            own = [f"cluster.machines={fleet.machines}", f"tiers.gpu.capacity={fleet.blocks} blocks"]
            own += [f"router.policy={fleet.ours}"] if fleet.machines > 1 else []
            own += ["replica.max_num_batched_tokens=8192", "replica.max_num_seqs=256"]
            settings = [part for setting in own for part in ("--set", setting)]
            output = ["--quiet", "-o", f"{directory}/run", "--force"]
            here = [sys.executable, "-m", "kvcache_sim", "simulate", given.trace, *settings, *output]
            reported = [given.trace, str(fleet.machines), fleet.theirs, str(fleet.blocks)]
            there = [sys.executable, "-c", _REPLAY, *reported]
            theirs, ours = [], []
            for _ in range(given.rounds):
                theirs.append(run(there, {"PYTHONPATH": given.dynamo}))
                ours.append(run(here, {}))
            before, now = min(theirs)[0], min(ours)[0]
            memory = f"{max(m for _, m in theirs):8.0f} {max(m for _, m in ours):8.0f}"
            print(f"{fleet.machines:<12} {before:8.2f} {now:8.2f} {before / now:7.2f} {memory}", flush=True)


if __name__ == "__main__":
    main()
