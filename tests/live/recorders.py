"""A `kvsim record` of a test's own: started on a free loopback port before a server, and stopped."""

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

from live_server import LONGEST


def numbered(rows: list[dict]) -> list[list[int]]:
    """Return the ids of each row by the order in which they first appear."""
    first: dict[int, int] = {}
    return [[first.setdefault(id, len(first)) for id in row["hash_ids"]] for row in rows]


@contextlib.contextmanager
def recorder(upstream: str, trace: Path, *options: str):
    words = ["record", "--upstream", upstream, "--port", "0", "-o", str(trace), *options]
    command = [sys.executable, "-m", "kvcache_sim", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert process.stderr is not None
        url = next(m[1] for line in process.stderr if (m := re.search(r"listening +(http://\S+)/v1", line)))
        yield process, url
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(LONGEST)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LONGEST)
        process.stderr.close()
