"""Ten million and one million rows from a pipe on 16 machines: CPU seconds and peak memory of both runs.

    python benches/ten_million.py ../shared/traces/conversation_trace.jsonl [COPIES …]

COPIES of the trace (default: 84 and 832) are piped in by ``repeat_trace.py``; only the run that reads them is
measured. Goals: 832 copies in at most 10.5 times the time of 84, and 350 MiB for any number.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = ("tiers.gpu.capacity=4096 blocks", "cluster.machines=16", "router.policy=prefill-cost")


def measure(trace: str, copies: int) -> tuple[float, float]:
    """Return the CPU seconds and MiB of a run over so many copies."""
    repeat = [sys.executable, str(Path(__file__).parent / "repeat_trace.py"), trace, str(copies)]
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    with tempfile.TemporaryDirectory(prefix="kvsim-bench-") as directory:
        command = [
            sys.executable,
            "-m",
            "kvcache_sim",
            "simulate",
            "-",
            *settings,
            "-q",
            "-o",
            f"{directory}/run",
        ]
        rows = subprocess.Popen(repeat, stdout=subprocess.PIPE)
        run = subprocess.Popen(command, stdin=rows.stdout, stdout=subprocess.DEVNULL)
        assert rows.stdout is not None
        rows.stdout.close()
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        rows.wait()
    if run.returncode or rows.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {run.returncode}, {rows.returncode} of its input")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main(trace: str, *copies: str) -> int:
    """Print a line for each number of copies."""
    first = None
    for number in map(int, copies or ("84", "832")):
        cpu_s, peak_mib = measure(trace, number)
        first = first or cpu_s
        print(f"{number:>5} copies {cpu_s:9.1f} CPU s {cpu_s / first:6.2f} x {peak_mib:7.0f} MiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
