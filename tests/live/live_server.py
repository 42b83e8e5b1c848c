"""A `kvsim serve` of a test's own: started on a free loopback port, stopped and read back."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Nothing here lasts longer, in seconds.
LONGEST = 60


class LiveServer:
    def __init__(self, process: subprocess.Popen[str], urls: list[str], directory: Path) -> None:
        self.process, self.urls, self.directory = process, urls, directory

    @property
    def url(self) -> str:
        return self.urls[0]

    def stop(self, number: int = signal.SIGTERM) -> Path:
        """Stop the server, wait for its run directory, and return its path."""
        self.process.send_signal(number)
        assert self.process.wait(LONGEST) == 0, self.process.stderr and self.process.stderr.read()
        return self.directory


@contextlib.contextmanager
def live_server(directory: Path, *arguments: str, ports: int = 1) -> Iterator[LiveServer]:
    command = [sys.executable, "-m", "kvcache_sim", "serve", "--port", "0", "-o", str(directory), *arguments]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stderr is not None
        urls: list[str] = []
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"listening +(http://\S+)/v1", line):
                urls.append(found[1])
            if len(urls) == ports:
                break
        assert len(urls) == ports, "".join(lines)
        yield LiveServer(process, urls, directory)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(LONGEST)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def digests(directory: Path) -> dict[str, str]:
    return json.loads((directory / "run.json").read_text())["digest"]


def replayed(directory: Path, target: Path, *options: str) -> dict[str, str]:
    """Simulate a live run's arrivals by its own scenario; return the digests."""
    command = [sys.executable, "-m", "kvcache_sim", "simulate", "-c", str(directory / "scenario.yaml")]
    subprocess.run(
        [*command, "-o", str(target), "-q", *options], check=True, timeout=LONGEST, capture_output=True
    )
    return digests(target)


@contextlib.contextmanager
def recorder(upstream: str, trace: Path, *options: str):
    """Yield a running ``kvsim record`` in front of a server, and its address."""
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
