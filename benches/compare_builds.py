"""Compare CPU seconds and peak memory of whole runs of this build and another, run in turn.

    python benches/compare_builds.py BASE [--rounds 5] [--only TEXT] [--many] [--instructions]

Each row: the minimum CPU seconds of both, the speed-up of this build, and the peak memory of each. Run ``make
build`` first. BASE is a commit, built in ``target/bench``, or a built checkout's ``python`` folder.
``--many`` adds the million requests, once each. ``--instructions`` counts instructions under valgrind
instead, which other processes do not disturb.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from build_of import ROOT, build_of
from works import WORKS, Work

TRACES = ROOT.parent / "shared" / "traces"


class Used(NamedTuple):
    """Measurements of one run: CPU seconds and MiB, and instructions if counted."""

    cpu_s: float
    peak_mib: float
    digest: str
    instructions: int = 0


def command_of(work: Work, directory: str) -> list[str]:
    """Return the command line of a work."""
    trace = [str(TRACES / work.trace)] if work.trace else []
    settings = [part for setting in work.settings for part in ("--set", setting)]
    settings += work.options
    output = ["--quiet", "--format", "json", "-o", f"{directory}/run", "--force"]
    return [sys.executable, "-m", "kvcache_sim", "simulate", *trace, *settings, *output]


def run(command: list[str], python: Path, directory: str) -> Used:
    """Run a command with one build; raises RuntimeError with its output if it fails."""
    with open(f"{directory}/out", "wb") as out, open(f"{directory}/err", "wb") as err:
        environment = {**os.environ, "PYTHONPATH": str(python)}
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=directory, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = Path(f"{directory}/err").read_text()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{said[-500:]}")
    digest = json.loads(Path(f"{directory}/out").read_text())["digest"]["results"]
    counted = re.search(r"I\s+refs:\s+([\d,]+)", said)
    instructions = int(counted[1].replace(",", "")) if counted else 0
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss / scale, digest, instructions)


def compare(work: Work, pythons: tuple[Path, Path], rounds: int, counting: bool) -> str:
    """Return the row of a work: (other, this) of each figure."""
    times: tuple[list[Used], list[Used]] = ([], [])
    with tempfile.TemporaryDirectory(prefix="kvsim-bench-") as directory:
        command = command_of(work, directory)
        if counting:
            tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
            command = [*tool, *command]
        for _ in range(1 if counting or work.size == "many" else rounds):
            for python, own in zip(pythons, times, strict=True):
                own.append(run(command, python, directory))
    other, this = times
    same = "" if other[0].digest == this[0].digest else "  other results"
    if counting:
        before, now = other[0].instructions, this[0].instructions
        figures = f"{before / 1e9:8.2f} {now / 1e9:8.2f} {before / now:7.2f}"
    else:
        before_s, now_s = min(u.cpu_s for u in other), min(u.cpu_s for u in this)
        figures = f"{before_s:8.2f} {now_s:8.2f} {before_s / now_s:7.2f}"
    peaks = [max(used.peak_mib for used in own) for own in times]
    return f"{work.name:<44} {figures} {peaks[0]:8.0f} {peaks[1]:8.0f}{same}"


def main() -> int:
    """Print the table; return 2 if a required file is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    asked = parser.parse_args()
    if asked.instructions and shutil.which("valgrind") is None:
        print("valgrind is missing", file=sys.stderr)
        return 2
    pythons = (build_of(asked.base), ROOT / "python")
    unit = "G instr." if asked.instructions else "CPU s"
    print(f"{unit:<44} {asked.base[-8:]:>8} {'here':>8} {'times':>7} {'MiB':>8} {'MiB':>8}", flush=True)
    for work in WORKS:
        if asked.only not in work.name or (work.size == "many" and not asked.many):
            continue
        if work.trace and not (TRACES / work.trace).exists():
            print(f"{work.name:<44} no ../shared/traces/{work.trace}")
            continue
        print(compare(work, pythons, asked.rounds, asked.instructions), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
