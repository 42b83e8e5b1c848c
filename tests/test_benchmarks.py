"""Each function of the quick benchmarks runs once, unmeasured: one that has stopped working is seen here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from kvcache_sim import _core
from shared_files import ROOT

#: The others take whole traces or a million rows, and run in `make bench`.
QUICK = ["bench_operations.py", "bench_thresholds.py"]


@pytest.mark.skipif(not _core.__release__, reason="benches/conftest.py skips them on a debug build")
@pytest.mark.parametrize("name", QUICK)
def test_every_function_runs_once(name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-rs"]
    command += ["--benchmark-disable", f"benches/{name}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout, done.stdout[-3000:]
