"""Generation of workloads: rows per second, in memory and to a file."""

from __future__ import annotations

import os

import pytest
from kvcache_sim.workload.generate import KINDS, build, settings_of, write_jsonl


@pytest.mark.parametrize("kind", KINDS)
def test_one_hundred_thousand_requests(benchmark, kind):
    """Target: at most 2 CPU s."""
    trace = benchmark.pedantic(build, (kind, {"requests": 100_000}, 1), rounds=3)
    assert len(trace) == 100_000


def test_a_million_rows_to_disk(benchmark):
    """Target: constant memory (`/usr/bin/time -v kvsim trace generate` shows it)."""
    settings = settings_of("conversational", {"requests": 1_000_000})
    with open(os.devnull, "w") as out:
        assert benchmark.pedantic(write_jsonl, (settings, 1, out), rounds=1) == 1_000_000
