"""Each function of the quick benchmarks runs once, unmeasured: one that has stopped working is seen here."""

import os
import subprocess
import sys

import pytest
from kvcache_sim import _core
from support.shared_files import ROOT

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


def test_twice_as_long_prints_a_row_a_policy(tmp_path):
    row = '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [0, 1]}\n'
    (tmp_path / "trace.jsonl").write_text(row * 9)
    trace = str(tmp_path / "trace.jsonl")
    command = [sys.executable, "benches/twice_as_long.py", trace, "--policies", "lru,sample"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    once, twice, _, *rows = done.stdout.splitlines()
    assert (once.split()[2], twice.split()[2]) == ("2", "4"), done.stderr
    assert [row.split()[0] for row in rows] == ["lru", "sample"]
