"""The search: finds a known answer, keeps its conditions, and resumes where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="pip install 'kvcache-sim[search]'")

from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.metrics.thresholds import parse_threshold
from kvcache_sim.sweeps.cell import Limits, Study
from kvcache_sim.sweeps.optimize import Goal, Search, best, optimize
from kvcache_sim.sweeps.plan import Resolved
from kvcache_sim.sweeps.space import Choice, interval
from kvcache_sim.sweeps.stop import StopRequest

SPACE = {"x": interval(0.0, 10.0, "linear", "x"), "kind": Choice(("good", "bad"))}
COST = Objective("cost.total", True)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def search(directory, trials, jobs=1, conditions=()):
    stop = StopRequest()
    goal = Goal(COST, tuple(parse_threshold(text) for text in conditions))
    study = Study("sweep_cells:priced", str(directory.parent))
    asked = Search(SPACE, trials, 0, jobs, Limits())
    try:
        return optimize(study, lambda row: Resolved(dict(row), 1.0), asked, goal, directory, stop)
    finally:
        stop.close()


def test_the_cheapest_that_meets_the_condition(tmp_path):
    """``priced`` costs x, doubled when bad, and has a TTFT p99 of 10 − x seconds: the answer is x = 6, good."""
    trials = search(tmp_path / "out", 60, 2, ["ttft.p99 < 4s"])
    chosen = best(trials, COST)
    assert chosen.is_feasible
    assert chosen.settings["kind"] == "good"
    assert 6.0 <= chosen.settings["x"] < 6.6
    assert not [t for t in trials if t.is_feasible and t.settings["x"] <= 6.0]


def test_without_conditions_the_cheapest_of_all(tmp_path):
    assert best(search(tmp_path / "out", 40), COST).settings["x"] < 0.5


def test_a_search_resumes_where_it_stopped(tmp_path):
    first = search(tmp_path / "out", 12)
    again = search(tmp_path / "out", 20)
    assert [t.settings for t in again[:12]] == [t.settings for t in first]
    assert len(again) == 20
    assert len({str(t.settings) for t in again}) > 15


def test_the_number_of_workers_changes_nothing(tmp_path):
    one, two = search(tmp_path / "one", 12, 1), search(tmp_path / "two", 12, 2)
    assert one == two


def test_conditions_that_nothing_meets(tmp_path):
    trials = search(tmp_path / "out", 8, 1, ["ttft.p99 < 1ms"])
    assert best(trials, COST) is None


SWEEP = """scenario:
  workload: {kind: conversational, requests: 40}
  tiers: {gpu: {capacity: 2000 blocks}, cpu: {capacity: 2000 blocks}}
  cache: {block_size: 16}
  cost: {gpu_hour: 2.0, dram_gib_month: 3.0}
random:
  draws: 4
  space: {tiers.cpu.capacity: {low: 100 blocks, high: 8000 blocks, scale: log}}
"""


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    arguments = ["optimize", "-c", "sweep.yaml", "-o", "out", "-j", "1"]
    assert kvsim([*arguments, "--minimize", "cost", "--subject-to", "ttft.p99 < 10h"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("best cost.per_million_tokens ")
    assert "--set tiers.cpu.capacity='" in out
    assert kvsim([*arguments, "--minimize", "cost", "--subject-to", "ttft.p99 < 1ns"]) == 4
    for wrong, says in (
        ([], "one goal"),
        (["--minimize", "cost", "--maximize", "cost"], "one goal"),
        (["--minimize", "cots"], "cots"),
        (["--minimize", "cost", "--subject-to", "ttft.p99 < +5%"], "no baseline"),
    ):
        assert kvsim([*arguments, *wrong]) == 2
        assert says in capsys.readouterr().err
    (tmp_path / "sweep.yaml").write_text("scenario: {}\ngrid: {seed: [1]}\n")
    assert kvsim([*arguments, "--minimize", "cost"]) == 2
    assert "random.space" in capsys.readouterr().err
