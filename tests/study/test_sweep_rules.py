"""Rules of sweeps and searches on processes and cells of a test: order, limits, retries, shards, distances."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sweeps import optimize, plan, simulation, space, study, tables
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Study
from kvcache_sim.extras.study.sweeps.coordinator import merge_shards, run_sweep
from kvcache_sim.extras.study.sweeps.plan import Plan, Resolved, lay_out
from kvcache_sim.extras.study.sweeps.simulation import refuse_unused
from kvcache_sim.extras.study.sweeps.single_run import single_run
from kvcache_sim.extras.study.sweeps.space import Interval, Space, interval
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.scenario.idle import IdleError


class TenRequests:
    """As much of a trace as its work depends on: twelve ids."""

    block_ids, block_size = range(12), 64

    def __len__(self):
        return 10


def cells_of(*works):
    return [Cell(n, "abcdefg"[n], {}, 0, work) for n, work in enumerate(works)]


@pytest.fixture
def stop():
    own = StopRequest()
    yield own
    own.close()


# --- workers of a simulated machine ------------------------------------------------------------------------


class Worker:
    """Is ready 30 s after its start; a cell then lasts as scripted and ends as scripted, None: the worker dies."""

    def __init__(self, machine):
        self.machine, self.ready_s, self.events, self.closed = machine, machine.s + 30, [(machine.s + 30, {"ready": 1})], 0  # fmt: skip

    def send(self, message):
        if "study" not in message:
            lasts_s, status = self.machine.script[message["cell_id"]].pop(0)
            answer = status and {"status": status, "summary": {}, "error": ""}
            self.events.append((max(self.machine.s, self.ready_s) + lasts_s, answer))

    def receive(self):
        return self.events.pop(0)[1]

    def last_words(self):
        return "memory allocation of 8 bytes failed"

    def close(self):
        self.closed += 1


class Machine:
    def __init__(self, script):
        self.s, self.script, self.workers, self.waits = 0, script, [], 0

    def now_s(self):
        return self.s

    def start(self):
        self.workers.append(Worker(self))
        return self.workers[-1]

    def wait(self, processes, stop, patience_s):
        self.waits += 1
        assert self.waits < 50, "it waits for nothing"
        at, first = min((one.events[0][0], n) for n, one in enumerate(processes) if one.events)
        if patience_s is not None and self.s + patience_s < at:
            self.s += patience_s
            return []
        self.s = at
        return [processes[first]]


@pytest.mark.parametrize(
    ("script", "limits", "expected"),
    [
        # the longest first, of equals the earliest
        ([[(4, "ok")], [(5, "ok")], [(6, "ok")]], Limits(), [("b", "ok", 1, 5, 35), ("a", "ok", 1, 4, 39), ("c", "ok", 1, 6, 45)]),
        # a limit holds from when the worker is ready, and may be reached
        ([[(10, "ok")], [(11, "ok")], [(3, "failed")]], Limits(10), [("b", "timeout", 1, 10, 40), ("a", "ok", 1, 10, 80), ("c", "failed", 1, 3, 83)]),
        # one more attempt than retries
        ([[(1, "ok")], [(2, None), (3, None), (4, None)], [(1, "ok")]], Limits(retries=2), [("b", "died", 3, 4, 99), ("a", "ok", 1, 1, 130), ("c", "ok", 1, 1, 131)]),
        # without memory there is no retry, and a new worker
        ([[(1, "ok")], [(2, None)], [(1, "oom")]], Limits(memory_bytes=9), [("b", "oom", 1, 2, 32), ("a", "ok", 1, 1, 63), ("c", "oom", 1, 1, 64)]),
    ],
)  # fmt: skip
def test_a_worker_runs_the_longest_cells_first_under_its_limits(stop, script, limits, expected):
    machine = Machine(dict(zip("abc", script, strict=True)))
    found = [
        (r.cell_id, r.status, r.attempts, r.elapsed_s, machine.s)
        for r in LocalRunner(1, limits, machine).run(Study("m:f", ""), cells_of(1, 2, 1), stop)
    ]
    assert found == expected
    assert {worker.closed for worker in machine.workers} == {1}


def test_a_request_to_stop_never_sinks_and_keeps_its_first_reason(stop):
    for asked, seen in (((1, 5), (1, 5)), ((2, 9), (2, 5)), ((1, 7), (2, 5))):
        stop.ask(*asked)
        assert (stop.level, stop.exit_code) == seen


# --- plans, shards and their records -----------------------------------------------------------------------


def test_shards_share_out_all_cells_and_equal_cells_run_once():
    own = [Cell(n, "abacaba"[n], {}) for n in range(7)]
    shards = [Plan("s", Study("m:f", ""), tuple(own), (number, 3)) for number in (1, 2, 3)]
    assert [[cell.index for cell in one.own_cells()] for one in shards] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [sorted(cell.index for cell in one.unique_cells()) for one in shards] == [[0, 3], [1, 4], [2, 5]]


def test_repeats_have_seeds_of_their_own_unless_the_study_sets_them():
    def resolve(row):
        return Resolved(dict(row), row["x"])

    made = lay_out("s", Study("m:f", ""), Space(grid={"x": [3, 4]}), (2, 7), resolve).cells
    seeds = [cell.settings.get("seed") for cell in made]
    assert [(cell.index, cell.settings["x"], cell.repeat, cell.work) for cell in made] == [(0, 3, 0, 3), (1, 3, 1, 3), (2, 4, 0, 4), (3, 4, 1, 4)]  # fmt: skip
    assert seeds == [None, plan.repeat_seed(7, 1)] * 2
    assert len({cell.cell_id for cell in made}) == 4
    files = lay_out("s", Study("m:f", "", files={"t": "1"}), Space(grid={"x": [3, 4]}), (1, 7), resolve).cells
    assert files[0].cell_id != made[0].cell_id
    seeded = Space(grid={"seed": [1, 2]})
    assert len(lay_out("s", Study("m:f", ""), seeded, (1, 0), lambda row: Resolved(dict(row), 1)).cells) == 2
    with pytest.raises(UsageError, match="repeats derive it too"):
        lay_out("s", Study("m:f", ""), seeded, (2, 0), lambda row: Resolved(dict(row), 1))


def test_a_sweep_has_at_most_as_many_cells_as_the_limit(monkeypatch):
    monkeypatch.setattr(space, "MAX_CELLS", 6)
    monkeypatch.setattr(plan, "MAX_CELLS", 6)
    six = Space(grid={"x": [1, 2, 3]}, points=[{"y": 1}, {"y": 2}])
    assert (six.size(), len(list(six.rows(0)))) == (6, 6)
    with pytest.raises(UsageError, match="too many cells"):
        Space(grid={"x": [1] * 7}).size()
    three, study = Space(grid={"x": [1, 2, 3]}), Study("m:f", "")
    assert len(lay_out("s", study, three, (2, 0), lambda row: Resolved(dict(row), 1)).cells) == 6
    with pytest.raises(UsageError, match="too many cells"):
        lay_out("s", study, three, (3, 0), lambda row: Resolved(dict(row), 1))


class Runs:
    """A runner whose cells end as said, and what began."""

    def __init__(self, **statuses):
        self.statuses, self.ran, self.begun = statuses, [], []

    def run(self, study, cells, stop):
        for cell in cells:
            self.ran.append(cell.cell_id)
            yield CellRecord(cell.cell_id, self.statuses[cell.cell_id])

    def begin(self, total, cached, damaged):
        self.begun.append((total, cached))

    def cell_ended(self, cell, record):
        pass


def swept(directory, stop, further=lambda cells, records: (), **statuses):
    runs = Runs(**statuses)
    own = Plan("s", Study("m:f", ""), tuple(cells_of(1, 1)))
    outcome = run_sweep(own, directory, runs, stop, runs, further)
    return runs, outcome


def test_finished_cells_never_run_again_and_failed_ones_do(tmp_path, stop):
    def third(cells, records):
        return [Cell(2, "c", {})] if len(cells) == 2 else ()

    runs, outcome = swept(tmp_path / "s", stop, third, a="ok", b="failed", c="ok")
    assert (runs.ran, runs.begun) == (["a", "b", "c"], [(2, 0), (3, 0)])
    assert (outcome.cached, outcome.failed, outcome.missing) == (0, 1, 0)
    runs, outcome = swept(tmp_path / "s", stop, third, b="ok")
    assert (runs.ran, runs.begun) == (["b"], [(2, 1), (3, 2)])
    assert (outcome.cached, outcome.failed, outcome.missing, outcome.exit_code) == (2, 0, 0, 0)


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_a_merge_takes_the_record_of_the_shard_that_finished(tmp_path, stop, order):
    swept(tmp_path / "x", stop, a="ok", b="failed")
    swept(tmp_path / "y", stop, a="failed", b="ok")
    _, records, damaged = merge_shards([tmp_path / name for name in order], tmp_path / "all")
    assert ({name: r.status for name, r in records.items()}, damaged) == ({"a": "ok", "b": "ok"}, [])


# --- searches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparison", "limit", "value", "holds", "distance"),
    [
        ("<", 10, 5, True, -0.5),
        ("<", 10, 10, False, 1e-12),
        ("<=", 10, 10, True, 0.0),
        ("<", -10, -5, False, 0.5),
        (">", -4, -5, False, 0.25),
        (">=", 0, 3, True, -3.0),
        (">=", 0, -3, False, 3.0),
        ("!=", 5, 3, True, 0.0),
        ("<=", 10, None, False, 1e30),
        ("<=", None, 3, False, 1e30),
    ],
)
def test_a_condition_has_a_distance_relative_to_its_limit(
    monkeypatch, comparison, limit, value, holds, distance
):
    monkeypatch.setattr(optimize, "metric_value", lambda summary, name: summary[name])
    condition = SimpleNamespace(
        metric="m", comparison=comparison, limit=lambda: limit, holds=lambda summary: holds
    )
    assert optimize.Goal(None, (condition,)).violations({"m": value}) == [distance]


@pytest.mark.parametrize(("smaller", "number"), [(True, 2), (False, 4)])
def test_the_best_trial_is_the_earliest_of_equals_that_meet_all_conditions(smaller, number):
    values = [(9, True), (1, False), (3, True), (3, True), (12, True), (12, True), (None, True)]
    trials = [optimize.Trial(n, {}, *row) for n, row in enumerate(values)]
    assert optimize.best(trials, Objective("m", smaller)).number == number
    assert optimize.best(trials[1:2], Objective("m", smaller)) is None


def test_a_drawn_value_stays_within_its_bounds_and_is_whole_if_both_are():
    assert math.exp(math.log(3.0)) > 3.0
    assert Interval(1.0, 3.0, True, "", False).value(1.0) == 3.0
    assert interval(1, 16, "log", "").value(0.5) == 4
    for low, high, whole in ((1, 2, True), (1, 2.5, False), (1.5, 3, False), ("1KiB", "2KiB", True)):
        assert interval(low, high, "linear", "").whole is whole
    for low, high, scale in ((2, 2, "linear"), (0, 1, "log"), (1, "2s", "linear"), (1, 2, "loglog")):
        with pytest.raises(UsageError):
            interval(low, high, scale, "")
    assert interval("1KiB", "3KiB", "linear", "").value(0.5) == "2048B"


# --- texts and tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shard", "found"),
    [
        ({}, (1, 1), (5, 4, 0, 150 * 60e-6, False)),
        ({"a": 5.0}, (1, 1), (5, 4, 1, 140 * 0.5, True)),
        ({"a": 5.0, "b": 2.0}, (1, 1), (5, 4, 2, 120 * 0.3, True)),  # the median of both
        ({"a": 5.0, "d": 9.0}, (1, 1), (5, 4, 2, 140 * 0.5, True)),  # a cell without work has no rate
        ({"a": None}, (1, 1), (5, 4, 0, 150 * 60e-6, False)),  # a failed cell runs again
        ({"b": 2.0}, (2, 2), (2, 2, 1, 0.0, True)),
    ],
)
def test_the_rest_of_a_sweep_takes_as_long_as_its_cells_did(seconds, shard, found):
    """Cells a to d of 10, 20, 120 and 0 units; a row that comes to cell a again is not run twice."""
    cells = (*cells_of(10.0, 20.0, 120.0, 0.0), Cell(4, "a", {}, 0, 10.0))
    records = {
        name: CellRecord(name, "failed" if s is None else "ok", elapsed_s=s or 1.0)
        for name, s in seconds.items()
    }
    own = plan.estimate(Plan("p", Study("m:f", ""), cells, shard), records)
    assert (own.rows, own.distinct, own.finished, own.is_measured) == (*found[:3], found[4])
    assert own.cpu_s == pytest.approx(found[3])
    left = own.distinct - own.finished
    assert [own.wall_s(jobs) for jobs in (1, 2, 9)] == [own.cpu_s / max(1, min(n, left)) for n in (1, 2, 9)]


def test_a_cell_alone_has_no_setting_that_only_others_use(monkeypatch):
    """Each refused setting is left out in turn, and a setting of a whole section with it; what else is wrong stays."""
    refused = [("a", "b"), ("c", "d", "e"), None]
    loads = []

    def load(scenario, settings, trace):
        loads.append((scenario, list(settings), trace))
        path = refused.pop(0)
        raise UsageError("wrong") if path is None else IdleError("idle", path=path)

    monkeypatch.setattr("kvcache_sim.extras.study.sweeps.single_run.load_scenario", load)
    chosen = {"c.d": {"e": 1}, "c.x": None, "a.c": 2.5, "f": "text"}
    words = single_run(Path("t"), Path("s"), ["a.b=1", "a.b.c=2"], chosen)
    left = ["a.b.c=2", "c.x=null", "a.c=2.5", "f=text"]
    assert words == ["kvsim", "simulate", "t", "-c", "s", *(word for one in left for word in ("--set", one))]
    assert [len(settings) for _, settings, _ in loads] == [6, 5, 4]
    assert {(scenario, trace) for scenario, _, trace in loads} == {(Path("s"), Path("t"))}
    refused[:] = [("z",)]  # a setting of the file, which no word sets
    assert single_run(None, None, [], {"a": True}) == ["kvsim", "simulate", "--set", "a=true"]


@pytest.mark.parametrize(("machines", "work"), [(1, 10 + 0.02 * 48), (3, (10 + 0.02 * 48) * 1.1)])
def test_the_work_of_a_cell_is_that_of_its_requests_on_its_machines(monkeypatch, machines, work):
    """Ids of 64 tokens are four blocks of 16; requests are read once for each trace and workload."""
    read = []
    monkeypatch.setattr(simulation, "read_requests", lambda scenario: read.append(scenario) or TenRequests())

    def scenario(**resolved):
        return SimpleNamespace(
            model=SimpleNamespace(cache=SimpleNamespace(block_size=16)), resolved=resolved,
            settings=SimpleNamespace(machines=[None] * machines),
        )  # fmt: skip

    reader, own = simulation._Requests(), scenario(trace="a", cache=1)
    assert simulation._work(own, reader.of(own)) == pytest.approx(work)
    assert [reader.of(scenario(**one)) for one in ({"trace": "a"}, {"trace": "b"}, {"workload": "a"})] == [
        (10, 48)
    ] * 3
    assert len(read) == 3


def test_commas_within_brackets_belong_to_a_value():
    assert study._parts("a,{b: 1, c: [2, 3]},[d,e],f") == ["a", "{b: 1, c: [2, 3]}", "[d,e]", "f"]


@pytest.mark.parametrize(
    ("said", "limits"),
    [
        ({}, Limits()),
        ({"time": "90s", "memory": "2KiB", "retries": 0}, Limits(90.0, 2048, 0)),
        ({"time": "0s"}, None),
        ({"memory": "0B"}, None),
        ({"retries": 101}, None),
        ({"retries": True}, None),
    ],
)
def test_limits_are_above_zero(said, limits):
    if limits is not None:
        assert study._limits(said, "") == limits
        return
    with pytest.raises(UsageError):
        study._limits(said, "")


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, None, 2], [1, None, 2]),
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ([2**63, 1], [float(2**63), 1.0]),
        ([True, None], [True, None]),
        ([True, 1], ["true", "1"]),
        (["a", 1, {"b": 2}, None], ["a", "1", '{"b": 2}', None]),
    ],
)
def test_a_column_has_one_type(values, column):
    found = tables._column(values)
    assert (found, [type(one) for one in found]) == (column, [type(one) for one in column])


@pytest.mark.parametrize(("rows", "refused"), [(["ab"], "a"), (["ab", "b"], "b"), (["a", "b"], ""), (["b", ""], ""), ([""], "")])  # fmt: skip
def test_a_setting_is_refused_if_no_row_uses_it(rows, refused):
    """Each row names the settings that it does not use; of several the first row's first is named."""
    idle = [{name: UsageError(name) for name in row} for row in rows]
    if not refused:
        return refuse_unused(idle)
    with pytest.raises(UsageError) as raised:
        refuse_unused(idle)
    assert raised.value is idle[0][refused]
