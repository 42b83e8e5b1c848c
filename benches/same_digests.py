"""Random small scenarios in this build and another: equal digests, and equal ones under the Python reference.

    python benches/same_digests.py BASE [--scenarios 300] [--seed 1] [--show]

BASE is a commit, built in ``target/bench``, or a built checkout's ``python`` folder. Scenarios are drawn
until so many run; one that every build refuses is drawn again. Each that differs is printed as the line
that runs it, and the exit code is then 1. ``--show`` prints every line. New seeds are new scenarios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from build_of import ROOT, build_of

#: Runs command lines that come in, and says each one's exit code and digests.
_RUNNER = """
import contextlib, io, json, shutil, sys, tempfile
from kvcache_sim.cli.main import run
place = tempfile.mkdtemp()
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(["simulate", *json.loads(line), "--quiet", "-o", place + "/run", "--force"])
    digest = json.load(open(place + "/run/summary.json"))["digest"] if code == 0 else said.getvalue()[-300:]
    print(json.dumps([code, digest]), flush=True)
shutil.rmtree(place)
"""
Answer = tuple[int, object]
Settings = dict[str, object]


class Build:
    """A build that runs one command line after another in a process of its own."""

    def __init__(self, python: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(python), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _RUNNER]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def run(self, arguments: list[str]) -> Answer:
        """Return (exit code, digests or what was said) of ``kvsim simulate`` with some arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        code, digest = json.loads(self._process.stdout.readline())
        return code, digest


def drawn(seed: int) -> Settings:
    """Return the settings of one random scenario, most of which a build takes."""
    draw = random.Random(seed)
    machines = draw.choice([1, 1, 2, 3, 4])
    settings: Settings = {"seed": seed, "cluster.machines": machines}
    settings |= _requests(draw) | _cache(draw) | _machine(draw)
    has_lower = not {"cache.semantics", "cache.enabled"} & settings.keys()
    settings |= _tiers(draw, draw.randint(0, 2) if has_lower else 0)
    if machines > 1:
        settings |= _fleet(draw, machines, "tiers.cpu.capacity" in settings)
    if "tiers.cpu.capacity" in settings:
        settings |= _movement(draw, machines, "tiers.disk.capacity" in settings)
    return settings


def _some(draw: random.Random, choices: dict[str, list[object]], chance: float) -> Settings:
    """Return each of some settings with a chance, at one of its values."""
    return {key: draw.choice(values) for key, values in choices.items() if draw.random() < chance}


def _requests(draw: random.Random) -> Settings:
    kind = draw.choice(["conversational", "diverse", "few-shot", "rag", "agentic"])
    own: Settings = {
        "kind": kind,
        "requests": draw.randint(10, 40),
        "arrivals.process": "poisson",
        "arrivals.rate_per_s": draw.choice([0.5, 2, 8, 40]),
        "block_size": 512,
        "output_tokens": {"kind": "uniform", "min": 1, "max": draw.choice([4, 60, 300])},
    }
    if kind in ("conversational", "agentic"):
        own["loop"] = draw.choice(["open", "closed"])
        own["think_time"] = {"kind": "uniform", "min": "100ms", "max": draw.choice(["1s", "20s"])}
        own["turns"] = {"kind": "uniform", "min": 1, "max": draw.randint(2, 6)}
        own["new_input_tokens"] = {"kind": "uniform", "min": 20, "max": draw.choice([300, 3000])}
    return {f"workload.{key}": value for key, value in own.items()}


def _cache(draw: random.Random) -> Settings:
    choices: dict[str, list[object]] = {
        "cache.cache_output": [False],
        "cache.admission": ["prompt"],
        "cache.touch": ["admission"],
        "cache.full_hit": ["skip-prefill"],
        "cache.lookup_time": ["100us"],
        "cache.scheduler_aware_window": [3],
        "cache.policy": ["fifo", "lfu", "s3fifo", "arc", "sieve", "slru", "lirs"],
        "cache.semantics": ["vllm", "sglang"],
        "cache.enabled": [False],
    }
    return {"cache.block_size": draw.choice([64, 128, 512]), **_some(draw, choices, 0.1)}


def _tiers(draw: random.Random, lower: int) -> Settings:
    sizes: Settings = {"gpu": draw.choice(["1GiB", "2GiB", "5GiB", "25GiB"])}
    for name in ("cpu", "disk")[:lower]:
        sizes[name] = draw.choice(["1GiB", "4GiB", "20GiB", "unbounded"])
    return {f"tiers.{name}.capacity": size for name, size in sizes.items()}


def _machine(draw: random.Random) -> Settings:
    choices: dict[str, list[object]] = {
        "replica.max_num_batched_tokens": [256, 2048, 16384],
        "replica.max_num_seqs": [1, 4, 16],
        "replica.queue_order": ["longest-prefix", "shortest-first"],
        "replica.duplicate_prefill": ["wait"],
        "replica.step_overhead": ["50us"],
        "replica.async_scheduling": ["length", "stop-token"],
        "replica.client_offset": ["7ms"],
    }
    return _some(draw, choices, 0.2)


def _fleet(draw: random.Random, machines: int, cpu: bool) -> Settings:
    routers = ["random", "least-loaded", "session-affinity", "longest-prefix", "prefill-cost", "overlap-cost"]
    if draw.random() < 0.6:
        return {"router.policy": draw.choice(routers)}
    decode = draw.randint(1, machines - 1)
    settings: Settings = {"pools.prefill": draw.randint(1, machines - decode), "pools.decode": decode}
    choices: dict[str, list[object]] = {
        "handover.transfer": ["layer-by-layer"],
        "handover.first_token": ["prefill"],
        "handover.path": ["via-cpu"] if cpu else ["gpu-direct"],
    }
    if decode > 1:
        choices["handover.router"] = ["round-robin", "longest-prefix"]
    if machines - decode > 1:
        choices["router.policy"] = list(routers)
    return settings | _some(draw, choices, 0.5)


def _movement(draw: random.Random, machines: int, disk: bool) -> Settings:
    choices: dict[str, list[object]] = {
        "write.policy": ["through", "through-sync", "selective"],
        "fetch.policy": ["never", "cheaper", "split"],
        "fetch.layer_pipelining": [False],
        "fetch.exclusive": [["cpu->gpu"]],
    }
    if disk:
        choices["prefetch.policy"] = ["queued"]
    if machines > 1:
        choices["fetch.lookup"] = ["cluster"]
    settings = _some(draw, choices, 0.3)
    if draw.random() < 0.5:
        edges = ["gpu->cpu", "cpu->gpu", *(["cpu->disk", "disk->cpu"] if disk else [])]
        link: Settings = {"bandwidth": draw.choice(["2GB/s", "20GB/s"]), "edges": edges}
        link |= {"latency": draw.choice(["0s", "20us", "5ms"]), "scope": draw.choice(["machine", "cluster"])}
        link |= {
            "sharing": draw.choice(["fifo", "fair"]),
            "priority": draw.choice(["in-order", "loads-first"]),
        }
        settings |= {"channels.link": link}
    return settings


def command_line(settings: Settings) -> list[str]:
    """Return the arguments of ``kvsim simulate`` that say some settings."""
    said = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in settings.items()]
    return [word for key, value in said for word in ("--set", f"{key}={value}")]


def compared(
    runs: dict[str, Callable[[list[str]], Answer]], seeds: Iterator[int], scenarios: int, show: bool
) -> Counter[str]:
    """Run so many scenarios everywhere, print those that differ, and count what came of all."""
    counts: Counter[str] = Counter()
    while counts["equal"] + counts["different"] < scenarios:
        arguments = command_line(drawn(next(seeds)))
        answers = {name: run(arguments) for name, run in runs.items()}
        codes, told = {code for code, _ in answers.values()}, {json.dumps(own) for _, own in answers.values()}
        what = "refused" if codes == {2} else "equal" if codes == {0} and len(told) == 1 else "different"
        counts[what] += 1
        if show or what == "different":
            print(what, "kvsim simulate", shlex.join(arguments), flush=True)
        if what == "different":
            for name, (code, own) in answers.items():
                print(f"  {name:<12} exit code {code}: {own}", flush=True)
    return counts


def main() -> int:
    """Compare the builds and print the counts; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base")
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    here, there = Build(ROOT / "python"), Build(build_of(asked.base))
    runs = {
        "here": here.run,
        "here, python": lambda arguments: here.run([*arguments, "--backend", "python"]),
        "there": there.run,
    }
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        seeds = iter(range(asked.seed * 1_000_000, (asked.seed + 1) * 1_000_000))
        counts = compared(runs, seeds, asked.scenarios, asked.show)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return int(counts["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
