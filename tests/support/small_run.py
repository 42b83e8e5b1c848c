"""A small run of every kind of figure: conversations on two machines of three tiers that evict and read each other."""

import contextlib
import io
import json
from pathlib import Path

from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.run_directory import COMPLETE, sha256_of

SCENARIO = """name: small
trace: {path: small.jsonl}
cache: {block_size: 512}
tiers: {gpu: {capacity: 30 blocks}, cpu: {capacity: 60 blocks}, disk: {capacity: unbounded}}
cluster: {machines: 2}
router: {policy: round-robin}
fetch: {lookup: cluster}
"""
WORKLOAD = {
    "first_input_tokens": "3000",
    "think_time": "{kind: uniform, min: 100ms, max: 20s}",
    "turns": "{kind: uniform, min: 1, max: 5}",
    "arrivals.rate_per_s": "4",
}


def small_run(directory: Path, requests: int = 200, *overrides: str) -> Path:
    """Simulate so many requests into a directory, which is made; the trace is next to it. Return the directory."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    scenario, trace = directory.parent / "small.yaml", directory.parent / "small.jsonl"
    scenario.write_text(SCENARIO)
    workload = [word for key, value in WORKLOAD.items() for word in ("--set", f"{key}={value}")]
    generate = [
        "trace",
        "generate",
        "conversational",
        f"--requests={requests}",
        *workload,
        f"--output={trace}",
    ]
    sets = [word for own in overrides for word in ("--set", own)]
    simulate = ["simulate", "-c", str(scenario), *sets, "-o", str(directory), "-q", "--record", "all"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert [kvsim([*generate, "--force"]), kvsim(simulate)] == [0, 0]
    return directory


def seal(directory: Path) -> None:
    """Write the list of a run's files and their digests anew, after a change by hand."""
    names = sorted(path.name for path in directory.iterdir() if path.name != COMPLETE)
    (directory / COMPLETE).write_text("".join(f"{sha256_of(directory / n)}  {n}\n" for n in names))


def warn(directory: Path, warning: str) -> Path:
    """Have a run say a warning; return it."""
    manifest = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps(manifest | {"warnings": [warning]}))
    seal(directory)
    return directory
