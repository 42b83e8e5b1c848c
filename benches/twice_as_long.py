"""CPU seconds and peak memory of each policy on a trace and on the same trace twice over.

    python benches/twice_as_long.py TRACE [--trace-block-size 16] [--capacity 1048576] [--policies lru,s3fifo]

Whole processes of ``kvsim cachesim`` and ``kvsim curve``; each copy has blocks of its own. Goals: at most 2.1
times the time, and no more memory than the distinct blocks explain, which stand in the first lines. Traces
of fewer than 8.4 million ids are read whole.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

KVSIM = (sys.executable, "-m", "kvcache_sim")
#: What each row runs on the trace; any other name is a policy of ``kvsim cachesim``.
CURVES = {"curve": (), "sample": ("--sample", "0.01")}
POLICIES = "lru,s3fifo,sieve,arc,lfu,twoq,curve,sample"


def measure(*arguments: str) -> tuple[float, float, bytes]:
    """Return the CPU seconds, the MiB and the output of a command."""
    with tempfile.TemporaryFile() as output:
        run = subprocess.Popen((*KVSIM, *arguments), stdout=output, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        if run.returncode:
            raise SystemExit(f"kvsim {' '.join(arguments)}: exit {run.returncode}")
        output.seek(0)
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output.read()


def main() -> int:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--trace-block-size", default="")
    parser.add_argument("--capacity", default="1048576")
    parser.add_argument("--policies", default=POLICIES)
    asked = parser.parse_args()
    form = ("--trace-block-size", asked.trace_block_size) if asked.trace_block_size else ()
    with tempfile.TemporaryDirectory(prefix="kvsim-bench-") as directory:
        twice = f"{directory}/twice.jsonl"
        measure("trace", "repeat", asked.trace, *form, "-n", "2", "-o", twice)
        traces = (asked.trace, twice)
        for trace in traces:
            found = json.loads(measure("curve", trace, *form, "--format", "json")[2])
            print(
                f"{found['queried_blocks']:>13,} references, {found['distinct_blocks']:,} distinct blocks",
                flush=True,
            )
        print(f"{'':<8}{'once':>18}{'twice':>19}{'ratio':>9}")
        for name in asked.policies.split(","):
            replay = ("--policy", name, "--capacity", asked.capacity)
            verb, options = ("curve", CURVES[name]) if name in CURVES else ("cachesim", replay)
            rows = [measure(verb, trace, *form, *options)[:2] for trace in traces]
            cells = "".join(f"{cpu_s:8.2f} s {peak_mib:5.0f} MiB" for cpu_s, peak_mib in rows)
            print(f"{name:<8}{cells}{rows[1][0] / rows[0][0]:7.2f} x", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
