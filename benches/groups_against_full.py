"""Compare whole replays of gpt-oss-120b with those of its copy with full attention only, in turn.

    python benches/groups_against_full.py [--rounds 9] [--instructions]

Each row: the minimum CPU seconds and the peak memory of both, and their ratios. The copy's replay also
explains its misses and computes upper bounds. ``--instructions`` counts instructions under valgrind instead,
which other processes do not disturb.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

TRACE = Path(__file__).resolve().parents[2] / "shared/traces/conversation_trace.jsonl"
#: Block in tokens → blocks of the pool.
POOLS = {512: 16_384, 16: 524_288}
COUNTING = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]


class Used(NamedTuple):
    """CPU seconds, or instructions, and the most memory in MiB."""

    cost: float
    peak_mib: float


def full_copy(folder: str) -> str:
    """Write the model with every window replaced by full attention; return the file."""
    text = files("kvcache_sim.model").joinpath("data/models/gpt-oss-120b.toml").read_text()
    path = Path(folder) / "gpt-oss-120b-full.toml"
    path.write_text(re.sub(r", window_tokens = \d+", "", text.replace('"sliding"', '"full"')))
    return str(path)


def used(command: list[str], counts: bool) -> Used:
    """Run a command and return its cost; raises RuntimeError with its output if it fails."""
    with tempfile.TemporaryFile() as said:
        reported = [*(COUNTING if counts else []), *command]
        process = subprocess.Popen(reported, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    if process.returncode:
        raise RuntimeError(text[-500:])
    counted = re.search(r"I\s+refs:\s+([\d,]+)", text)
    cost = int(counted[1].replace(",", "")) if counted else usage.ru_utime + usage.ru_stime
    return Used(cost, usage.ru_maxrss / 1024)


def replay(model: str, block: int, blocks: int) -> list[str]:
    """Return the command that replays the conversation trace."""
    reported = [
        sys.executable,
        "-m",
        "kvcache_sim",
        "cachesim",
        str(TRACE),
        "--policy",
        "vllm",
        "--model",
        model,
    ]
    reported += ["--capacity", str(blocks), "--block-size", str(block), "--window", "32"]
    return [*reported, "--outputs", "computed"]


def main() -> None:
    parser = argparse.ArgumentParser(description="groups against full attention", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--instructions", action="store_true")
    asked = parser.parse_args()
    unit, rounds = ("instructions", 1) if asked.instructions else ("CPU s", asked.rounds)
    with tempfile.TemporaryDirectory() as folder:
        models = ("gpt-oss-120b", full_copy(folder))
        for block, blocks in POOLS.items():
            commands = [replay(model, block, blocks) for model in models]
            runs = [[used(command, asked.instructions) for command in commands] for _ in range(rounds)]
            groups, full = (min(run.cost for run in own) for own in zip(*runs, strict=True))
            most, of_full = (max(run.peak_mib for run in own) for own in zip(*runs, strict=True))
            time = f"{groups:,.2f} against {full:,.2f} {unit}, {groups / full:.2f} times"
            memory = f"{most:.0f} against {of_full:.0f} MiB, {most / of_full:.2f} times"
            print(f"{blocks:,} blocks of {block}: {time}; {memory}", flush=True)


if __name__ == "__main__":
    main()
