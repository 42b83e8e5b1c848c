"""CPU seconds of a whole `kvsim simulate`, start-up and output included (H100, Llama-3-8B).

With ``KVSIM_BENCH_OLD``, the ``python`` folder of another built checkout, that build and this one run in
turn, nine times each. The figures are the minimum of each and their ratio.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from round_times import round_s
from support.shared_files import shared

KVSIM = [sys.executable, "-m", "kvcache_sim"]
OLD = os.environ.get("KVSIM_BENCH_OLD", "")


def _machines(machines: int, blocks: int) -> list[str]:
    return [
        f"cluster.machines={machines}",
        f"tiers.gpu.capacity={blocks} blocks",
        "router.policy=longest-prefix",
    ]


#: name → (trace, or "" for a generated workload; settings)
CASES: dict[str, tuple[str, list[str]]] = {
    "one machine, block 512": ("conversation", ["tiers.gpu.capacity=16384 blocks"]),
    "one machine, block 16": ("conversation", ["cache.block_size=16", "tiers.gpu.capacity=524288 blocks"]),
    "four machines, longest prefix": ("conversation", _machines(4, 1000)),
    "four machines, longest prefix, block 16": (
        "conversation",
        [*_machines(4, 32_000), "cache.block_size=16"],
    ),
    "sixteen machines, longest prefix": ("conversation", _machines(16, 1000)),
    "sixty-four machines, longest prefix": ("conversation", _machines(64, 1000)),
    "one machine of 1,000 blocks": ("conversation", ["tiers.gpu.capacity=1000 blocks"]),
    "three tiers, four machines": (
        "conversation",
        [
            "cluster.machines=4",
            "tiers.gpu.capacity=1000 blocks",
            "tiers.cpu.capacity=4000 blocks",
            "tiers.disk.capacity=16000 blocks",
        ],
    ),
    "four prefill and four decode machines": (
        "conversation",
        ["cluster.machines=8", "pools={prefill: 4, decode: 4}", "tiers.gpu.capacity=1000 blocks"],
    ),
    "a million generated requests": (
        "",
        [
            "workload.kind=conversational",
            "workload.requests=1000000",
            "workload.arrivals={process: poisson, rate_per_s: 1.5}",
            "workload.first_input_tokens=512",
            "workload.output_tokens=64",
            "tiers.gpu.capacity=16384 blocks",
        ],
    ),
}


def children_cpu_s() -> float:
    """Return the CPU seconds of all finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.benchmark(timer=children_cpu_s, group="kvsim simulate, CPU s")
@pytest.mark.parametrize("case", CASES)
def test_simulate(benchmark, tmp_path, case):
    trace, settings = CASES[case]
    command = [*KVSIM, "simulate", "-q", "--format", "json", "-o", str(tmp_path / "out"), "--force"]
    command += [str(shared(f"traces/{trace}_trace.jsonl"))] if trace else []
    command += [part for setting in settings for part in ("--set", setting)]

    def run(python: str = "") -> dict:
        environment = {**os.environ, **({"PYTHONPATH": python} if python else {})}
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        return json.loads(done.stdout)

    old_s: list[float] = []

    def run_old() -> None:
        before = children_cpu_s()
        run(str(Path(OLD).resolve()))
        old_s.append(children_cpu_s() - before)

    rounds = 9 if OLD else 3
    summary = benchmark.pedantic(run, setup=run_old if OLD else None, rounds=rounds if trace else 1)
    benchmark.extra_info["CPU s"] = round(round_s(benchmark), 3)
    if OLD:
        benchmark.extra_info["CPU s of the old build"] = round(min(old_s), 3)
        benchmark.extra_info["new/old"] = round(round_s(benchmark) / min(old_s), 3)
    benchmark.extra_info["MiB at most"] = summary["wall"]["peak_rss_bytes"] >> 20
    benchmark.extra_info["token hit rate"] = summary["cache"]["token_hit_rate"]


@pytest.mark.benchmark(timer=children_cpu_s, group="start-up, CPU s")
@pytest.mark.parametrize("arguments", [["--help"], ["simulate", "--help"]], ids=" ".join)
def test_start_up(benchmark, arguments):
    benchmark.pedantic(
        lambda: subprocess.run([*KVSIM, *arguments], check=True, capture_output=True), rounds=5
    )


def test_load_a_scenario(benchmark):
    from kvcache_sim.scenario.load import load_scenario

    quickstart = Path(__file__).resolve().parents[1] / "scenarios" / "quickstart.yaml"
    benchmark(load_scenario, quickstart)
