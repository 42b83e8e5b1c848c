"""A server's memory does not grow with its requests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Requests until all buffers have been full once, and at the end.
FIRST, LAST = 18_000, 36_000
MOST_BYTES_A_REQUEST = 64


@pytest.mark.skipif(sys.platform != "linux", reason="the resident memory is read from /proc")
@pytest.mark.parametrize("prompts", ["same", "new"])
def test_a_request_that_has_left_leaves_nothing_in_memory(prompts):
    """All that is kept of it is in the files of the run."""
    script = Path(__file__).with_name("live_memory.py")
    words = [sys.executable, str(script), prompts, str(FIRST), str(LAST)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    first_kb, last_kb = map(int, done.stdout.split())
    assert 1024 * (last_kb - first_kb) < MOST_BYTES_A_REQUEST * (LAST - FIRST)
