"""`kvsim serve` under the compiled load generator: lag, CPU time per token, memory and open files.

``cargo build --release -p kvsim-core --example load_generator`` makes the generator; ``benches/README.md``
has the commands. Prints the generator's results, then the server's CPU seconds and µs per token, the lag of
its tokens, and resident memory and open files after a tenth of the requests and at the end. All traffic stays
on the loopback address and stops by itself.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GENERATOR = (
    Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[1] / "target"))
    / "release/examples/load_generator"
)


def seen(pid: int) -> tuple[float, int, int]:
    """Return a process's CPU seconds, resident KiB and open files."""
    index = Path(f"/proc/{pid}")
    user, system = (index / "stat").read_text().rpartition(")")[2].split()[11:13]
    resident = re.search(r"VmRSS:\s+(\d+)", (index / "status").read_text())
    assert resident is not None
    cpu_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return cpu_s, int(resident[1]), len(list((index / "fd").iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("requests", 6000), ("rate", 200), ("tokens", 75), ("held", 0), ("stalled", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--generator", type=Path, default=GENERATOR)
    parser.add_argument("--serve", default="-c preset:one-gpu", help="options of kvsim serve")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "kvcache_sim", "serve", "--port", "0", "-o", f"{directory}/run"]
        command += ["--speed", str(asked.speed), *shlex.split(asked.serve)]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            measure(server, asked)
        finally:
            server.kill()


def measure(server: subprocess.Popen[str], asked: argparse.Namespace) -> None:
    assert server.stderr is not None
    port = next(found[1] for line in server.stderr if (found := re.search(r"http://\S+:(\d+)/v1", line)))
    before_s, _, files = seen(server.pid)
    numbers = (asked.requests, asked.rate, asked.tokens, asked.held, asked.stalled)
    generator = subprocess.Popen([asked.generator, port, *map(str, numbers)])
    tenth_at = time.monotonic() + asked.requests / asked.rate / 10
    tenth = seen(server.pid)
    while generator.poll() is None:
        if time.monotonic() < tenth_at:
            tenth = seen(server.pid)
        time.sleep(0.2)
    time.sleep(1)
    cpu_s, resident, files_after = seen(server.pid)
    tokens = asked.requests * asked.tokens
    print(f"CPU        {cpu_s - before_s:.2f} s, {1e6 * (cpu_s - before_s) / tokens:.1f} µs a token")
    print(f"memory     {tenth[1] / 1024:.1f} MiB after a tenth, {resident / 1024:.1f} at the end")
    print(f"files      {files} open before, {files_after} after")
    server.send_signal(signal.SIGTERM)
    print(server.stderr.read().strip().splitlines()[-1])


if __name__ == "__main__":
    main()
