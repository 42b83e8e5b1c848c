"""Count the Python calls, files and changes of file of one request, from arrival to close.

One machine with a GPU and a CPU tier serves three requests, far apart in time. The second evicts the first to
the CPU, and the third uses the first one's blocks again, a CPU hit. The third request is counted, from the
event before its arrival to the last event of the run: calls of functions of ``kvcache_sim``, the number of
files that contain them, and the calls into another file than the call before. The counts are exact and
repeat.

    python benches/request_path.py [--calls] [--spec]

``--spec`` counts the specification's path instead, in the files of ``spec/`` only.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import kvcache_sim
import numpy as np
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.simulation.spec_simulation import SpecSimulation
from kvcache_sim.workload.trace import Trace

PACKAGE = str(Path(kvcache_sim.__file__).parent)
BLOCK = 512
S = 10**9


def three_requests() -> Trace:
    """Return two prompts of three blocks each and then the first one again, 100 s apart."""
    prompts = [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 8]]
    n = len(prompts)
    return Trace(
        arrival_ns=np.arange(n, dtype=np.int64) * 100 * S,
        input_tokens=np.full(n, 4 * BLOCK, np.int64),
        output_tokens=np.full(n, 8, np.int64),
        id_offsets=np.arange(n + 1, dtype=np.int64) * 4,
        block_ids=np.array(prompts, np.uint32).reshape(-1),
        block_size=BLOCK,
        session=np.full(n, -1, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, -1, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
    )


def one_machine() -> ClusterSettings:
    """Return the cluster of one machine whose GPU has capacity for one request."""
    edges = ("gpu->cpu", "cpu->gpu")
    machine = MachineSettings(
        tiers=(TierSettings("gpu", 5), TierSettings("cpu", 100)),
        step_time=load_step_time("h100-llama-3.1-8b-tp1"),
        edge_channels={edge: edge for edge in edges},
    )
    channels = {edge: ChannelSettings(edge, 50 * 10**9, 5_000) for edge in edges}
    return ClusterSettings((machine,), channels, CacheSettings(block_size_tokens=BLOCK))


def calls_of_a_cpu_hit(spec: bool = False) -> list[tuple[str, str]]:
    """Return (file, function) of each call, in order; with ``--spec``, of the specification's calls."""
    run: Any
    if spec:
        run = SpecSimulation(one_machine(), three_requests(), RunOptions(engine="spec"))
        run.simulator.start()
        engine, machines = run.simulator.engine, run.simulator.machines
    else:
        run = Simulation(one_machine(), three_requests(), RunOptions())
        run.cluster.start()
        engine, machines = run.engine, run.replicas
    engine.run(until_ns=199 * S)
    calls: list[tuple[str, str]] = []
    package = f"{PACKAGE}/spec" if spec else PACKAGE

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(package):
            calls.append((file[len(PACKAGE) + 1 :], frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        engine.run()
    finally:
        sys.setprofile(None)
    if not spec:
        machines[0].count_moved_bytes()
    moved = machines[0].mover.edge_bytes if spec else machines[0].moved.edge_bytes
    assert moved["cpu->gpu"] > 0, "the third request is a CPU hit"
    return calls


def main() -> None:
    """Print the counts, and with ``--calls`` the calls."""
    calls = calls_of_a_cpu_hit("--spec" in sys.argv)
    files = [file for file, _ in calls]
    changes = sum(a != b for a, b in pairwise(files))
    print(f"{len(calls)} calls in {len(set(files))} files, {changes} changes of file")
    if "--calls" in sys.argv:
        for (file, function), n in Counter(calls).most_common():
            print(f"{n:4}  {file}  {function}")


if __name__ == "__main__":
    main()
