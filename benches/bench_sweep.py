"""Overhead of a sweep: 1,000 cells of a known CPU time on one worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.coordinator import run_sweep
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner
from support.sweep_driver import Silent, plan_of

TESTS = Path(__file__).resolve().parents[1] / "tests"
CELLS = 1000


@pytest.mark.parametrize("function", ["quick", "spins"])
def test_a_thousand_cells(benchmark, tmp_path, monkeypatch, function):
    """Cells: ``quick`` takes no time, so all of it is overhead; ``spins`` takes 20 ms of CPU per cell."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    stop = StopRequest()

    def run():
        directory = tmp_path / os.urandom(4).hex()
        return run_sweep(plan_of(CELLS, function), directory, LocalRunner(1, Limits()), stop, Silent())

    outcome = benchmark.pedantic(run, rounds=1)
    cells_s = sum(record.elapsed_s for record in outcome.records.values())
    benchmark.extra_info["sum of cells, s"] = round(cells_s, 2)
    stop.close()
