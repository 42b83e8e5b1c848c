"""The search: finds a known answer, keeps its conditions, and resumes where it stopped."""

import os
from itertools import chain, product

import pytest

pytest.importorskip("optuna", reason="pip install 'kvcache-sim[search]'")

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sweeps.cell import CellRecord, Limits, Study
from kvcache_sim.extras.study.sweeps.optimize import Goal, Search, Trial, best, optimize, tried
from kvcache_sim.extras.study.sweeps.space import Choice, interval
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.metrics.objectives import Objective
from support.product.reports import parse_threshold
from support.product.sweeps import CellStore, Resolved

SPACE = {"x": interval(0.0, 10.0, "linear", "x"), "kind": Choice(("good", "bad"))}
COST = Objective("cost.total", True)


def resolved(row):
    return Resolved(dict(row), 1.0)


def search(directory, trials, jobs=1, conditions=(), **changed):
    """Search in a folder; ``changed``: another space, function of cells, resolver of settings or request to stop."""
    stop = changed.get("stop") or StopRequest()
    goal = Goal(changed.get("objective", COST), tuple(parse_threshold(text) for text in conditions))
    study = Study(f"support.sweep_cells:{changed.get('cells', 'priced')}", str(directory.parent))
    asked = Search(changed.get("space", SPACE), trials, 0, jobs, Limits())
    try:
        return optimize(study, changed.get("resolve", resolved), asked, goal, directory, stop)
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


@pytest.mark.parametrize(("smaller", "kind", "x"), [(True, "good", 0.0), (False, "bad", 10.0)])
def test_without_conditions_the_best_of_all(tmp_path, smaller, kind, x):
    objective = Objective("cost.total", smaller)
    chosen = best(search(tmp_path / "out", 30, objective=objective), objective)
    assert chosen.settings["kind"] == kind
    assert chosen.settings["x"] == pytest.approx(x, abs=0.7)


def test_a_search_resumes_where_it_stopped(tmp_path):
    first = search(tmp_path / "out", 12)
    again = search(tmp_path / "out", 20)
    assert [t.settings for t in again[:12]] == [t.settings for t in first]
    assert len(again) == 20
    assert len({str(t.settings) for t in again}) > 15


def test_a_search_that_is_stopped_ends_with_what_it_has(tmp_path):
    stop = StopRequest()

    def stopping(row):
        stop.ask(1, 130)
        return resolved(row)

    assert search(tmp_path / "out", 12, resolve=stopping, stop=stop) == []
    whole, again = search(tmp_path / "whole", 12), search(tmp_path / "out", 12)
    assert [trial.number for trial in again] == list(range(12))
    assert [trial.settings for trial in again[:4]] == [trial.settings for trial in whole[:4]]


def test_trials_of_a_search_that_could_not_start_are_proposed_again(tmp_path):
    def refused(row):
        raise UsageError("no requests")

    for _ in range(2):
        with pytest.raises(UsageError, match="no requests"):
            search(tmp_path / "out", 6, resolve=refused)
    trials = search(tmp_path / "out", 6)
    assert [trial.settings for trial in trials[:4]] == [t.settings for t in search(tmp_path / "whole", 6)[:4]]
    assert len(trials) == 6
    assert all(trial.value is not None for trial in trials)


@pytest.mark.parametrize("cut", [0, 1, 5, 300])
def test_a_journal_whose_writer_was_killed_is_read_to_its_last_line(tmp_path, cut):
    """It ends within a line, and Optuna's own lock stays behind."""
    search(tmp_path / "out", 8)
    journal = tmp_path / "out" / "journal.log"
    os.truncate(journal, journal.stat().st_size - cut)
    journal.with_name("journal.log.lock").symlink_to("nowhere")
    for trials in (8, 12):
        again = search(tmp_path / "out", trials)
        assert len(again) == trials
        assert all(trial.value is not None for trial in again)


def test_a_cell_that_failed_is_simulated_again(tmp_path):
    """All trials have the same settings; the first of them fails once."""
    space = {"x": Choice((3.0,)), "kind": Choice(("good",))}
    for trials, values in ((1, [None]), (2, [None, 3.0])):
        found = search(tmp_path / "out", trials, cells="priced_later", space=space)
        assert [trial.value for trial in found] == values


@pytest.mark.parametrize("smaller", [True, False])
def test_the_best_is_the_first_of_the_best_values_among_those_that_meet_all_conditions(smaller):
    """Every list of up to three values, of which some are unknown and some miss a condition."""
    objective, kinds = (
        Objective("x", smaller),
        [(v, f) for v in (None, -1.0, 0.0, 0.5) for f in (True, False)],
    )
    for drawn in chain.from_iterable(product(kinds, repeat=n) for n in range(4)):
        trials = [Trial(n, {}, *kind) for n, kind in enumerate(drawn)]
        able = [
            (value if smaller else -value, n)
            for n, (value, meets) in enumerate(drawn)
            if meets and value is not None
        ]
        chosen = best(trials, objective)
        assert (None if chosen is None else chosen.number) == (min(able)[1] if able else None)


@pytest.mark.parametrize(
    ("condition", "value", "violation"),
    [
        *[("<", 3.0, -0.25), ("<", 4.0, 1e-12), ("<=", 4.0, 0.0), ("<", 5.0, 0.25), (">", 3.0, 0.25)],
        *[(">", 4.0, 1e-12), (">=", 4.0, 0.0), (">", 6.0, -0.5), (">", None, 1e30)],
    ],
)
def test_a_violation_is_the_distance_from_holding_in_units_of_the_limit(condition, value, violation):
    goal = Goal(COST, (parse_threshold(f"cost.total {condition} 4"), parse_threshold("cost.total <= 0")))
    first, at_zero = goal.violations({"cost": {"total": value}})
    assert first == pytest.approx(violation, rel=1e-9, abs=0)
    assert at_zero == (1e30 if value is None else value)  # no unit: the distance itself


def test_the_table_has_settings_once_under_their_first_trial(tmp_path):
    study, store = Study("support.sweep_cells:priced", "."), CellStore(tmp_path)
    store.create()
    trials = [Trial(n, {"x": x, "kind": "good"}, None, False) for n, x in enumerate((3.0, 5.0, 3.0, 8.0))]
    cells, _ = tried(study, resolved, trials[1:2], tmp_path)
    store.save(CellRecord(cells[0].cell_id, "ok", {"cost": {"total": 5.0}}))
    cells, rows = tried(study, resolved, trials, tmp_path)
    assert [cell.index for cell in cells] == [0, 1, 3]
    names = ("cell", "repeat", "status", "set.x", "set.kind", "cost.total")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, 0, "missing", 3.0, "good", None),
        (1, 0, "ok", 5.0, "good", 5.0),
        (3, 0, "missing", 8.0, "good", None),
    ]


def test_the_number_of_workers_changes_nothing(tmp_path):
    one, two = search(tmp_path / "one", 12, 1), search(tmp_path / "two", 12, 2)
    assert one == two
