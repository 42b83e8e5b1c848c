"""Verdicts that survive another seed: none between seeds of one scenario, and the slower of two step times."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.report.compare.comparison import compare
from kvcache_sim.report.compare.samples import STATISTICS
from kvcache_sim.report.compare.stretches import STRETCHES, change_interval
from kvcache_sim.report.compare.verdict import verdict
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import load_varied
from kvcache_sim.scenario.presets import scenario_file
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from report.finished_rows import written
from support.product.models import ScaledStepTime
from support.product.reports import FinishedRun

SEEDS = range(1, 26)


@cache
def run(preset: str, seed: int, slower: float = 1.0) -> FinishedRun:
    """Return a run whose steps take ``slower`` times as long."""
    scenario = load_varied(scenario_file(Path(f"preset:{preset}")), [f"seed={seed}"])
    machines = tuple(
        replace(one, step_time=ScaledStepTime(one.step_time, decode=slower, chunk=slower, launch=slower))
        for one in scenario.settings.machines
    )
    varied = replace(scenario, settings=replace(scenario.settings, machines=machines))
    done = execute(varied, read_requests(scenario), RunOptions())
    return written(dict(done.run.requests), label="slow" if slower > 1 else "fast")


@pytest.mark.parametrize("preset", ["few-shot", "diverse"])
def test_two_seeds_of_one_scenario_have_no_better_one(preset):
    better = [verdict(compare([run(preset, n)], [run(preset, n + 1)])).better for n in SEEDS]
    assert sum(name is not None for name in better) <= 1


@pytest.mark.parametrize("preset", ["few-shot", "diverse"])
def test_steps_that_take_a_tenth_longer_are_found(preset):
    found = [verdict(compare([run(preset, n)], [run(preset, n, 1.1)])) for n in SEEDS]
    right = [
        one.better == "fast" and one.difference.statistic.metric.startswith("latency.t") for one in found
    ]
    assert sum(right) >= 24


@pytest.mark.parametrize(("paired", "t"), [(True, 2.571), (False, 4.032)])
def test_an_interval_by_hand(paired, t):
    """The mean of six stretches of which one is 7 and the others 1 is 2; without that one it is 1, else 2.2."""
    ttft = next(one for one in STATISTICS if one.metric == "latency.ttft.avg")
    alone = np.array([7.0, 1, 1, 1, 1, 1])
    without = (12 - alone) / (STRETCHES - 1)
    steady = np.full((2, STRETCHES), 4.0)
    low, high = change_interval(ttft, (4.0, 2.0), (steady, np.array([without, alone])), paired)
    error = np.std(alone, ddof=1) / STRETCHES**0.5 / 2
    assert [low, high] == pytest.approx([0.5 * np.exp(-t * error), 0.5 * np.exp(t * error)])
