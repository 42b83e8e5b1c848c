"""Cost of the curve over all capacities: CPU seconds of ``kvsim curve`` beyond start-up, and its memory.

Goals: ≤ 0.3 CPU s at block 512, ≤ 0.6 at block 16; the cost does not grow with the number of capacities.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kvcache_sim.replay.curve.hits import hit_curve
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers.read import read_trace
from support.shared_files import shared

#: A command that parses its options and does nothing: the cost of start-up.
START = (sys.executable, "-m", "kvcache_sim", "help", "units")


def cpu_seconds(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("size", [512, 16])
def test_the_command(benchmark, size):
    path = str(shared("traces/conversation_trace.jsonl"))
    options = ["--block-size", str(size), "--last-partial", "keep", "--every-capacity", "--format", "json"]
    command = (sys.executable, "-m", "kvcache_sim", "curve", path, *options)
    start_up = min(cpu_seconds(*START) for _ in range(3))
    used = []
    benchmark.pedantic(lambda: used.append(cpu_seconds(*command)), rounds=3)
    benchmark.extra_info |= {
        "CPU s": round(min(used), 3),
        "CPU s beyond start-up": round(min(used) - start_up, 3),
    }


@pytest.mark.parametrize("share", ["0", "0.01"])
def test_a_sample(benchmark, share):
    """Eight conversation traces in blocks of 16: a sample takes about half of what the exact curve takes."""
    folder = Path(tempfile.gettempdir()) / "kvsim-bench-curve"
    folder.mkdir(exist_ok=True)
    small, long = folder / "b16.parquet", folder / "eight.parquet"
    if not long.exists():
        kvsim = (sys.executable, "-m", "kvcache_sim", "trace")
        path = str(shared("traces/conversation_trace.jsonl"))
        cpu_seconds(*kvsim, "rechunk", path, "--to", "16", "-o", str(small), "--force")
        cpu_seconds(*kvsim, "repeat", str(small), "--trace-block-size", "16", "-n", "8", "-o", str(long))
    command = (sys.executable, "-m", "kvcache_sim", "curve", str(long), "--trace-block-size", "16")
    sample = ("--sample", share) if share != "0" else ()
    used = []
    benchmark.pedantic(lambda: used.append(cpu_seconds(*command, *sample)), rounds=3)
    benchmark.extra_info |= {"CPU s": round(min(used), 3)}


@pytest.mark.parametrize("capacities", [1, 100_000])
def test_capacities_asked_for(benchmark, capacities):
    trace = read_trace(shared("traces/conversation_trace.jsonl"))
    sizes = np.linspace(1, 5_000_000, capacities).astype(np.int64)

    def ask():
        prompts = blocks_of_prompts(ReplayRequest(trace, 16, 1, last_partial="keep"))
        return hit_curve(prompts, "tail").hit_blocks.at(sizes)

    benchmark.pedantic(ask, rounds=3)
