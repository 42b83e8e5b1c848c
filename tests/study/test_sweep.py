"""Cells and output of a sweep: spaces, addresses, limits, shards, equal tables for any number of workers."""

import math
import os
import resource
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.api.sweeping import settings_space
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.root import repeat_seed
from kvcache_sim.cli.reading import LEAST_BYTES, parse_memory
from kvcache_sim.extras.study.sweeps import simulation, worker
from kvcache_sim.extras.study.sweeps import study as studies
from kvcache_sim.extras.study.sweeps.cell import CellRecord, Limits, Study
from kvcache_sim.extras.study.sweeps.coordinator import merge_shards, run_sweep
from kvcache_sim.extras.study.sweeps.plan import Plan, Resolved, keep_plan, lay_out
from kvcache_sim.extras.study.sweeps.simulation import prepare
from kvcache_sim.extras.study.sweeps.space import Choice, Space, interval
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.store import CellStore, claim
from kvcache_sim.extras.study.sweeps.study import read_sweep_file
from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner
from kvcache_sim.metrics.objectives import pareto_front, parse_objectives
from kvcache_sim.report.best_cell import best_row
from support.examples import examples
from support.sweep_driver import Silent, plan_of
from support.sweep_runs import sweep, tables


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(__import__("pathlib").Path(__file__).parents[1]))


def test_one_two_and_eight_workers_write_the_same_bytes(tmp_path):
    plan = plan_of(17, "quick")
    for jobs in (1, 2, 8):
        assert sweep(plan, tmp_path / str(jobs), jobs).exit_code == 0
    assert tables(tmp_path / "1") == tables(tmp_path / "2") == tables(tmp_path / "8")


def test_shards_merged_are_the_whole_sweep(tmp_path):
    plan = plan_of(11, "quick")
    sweep(plan, tmp_path / "whole")
    shards = [tmp_path / f"shard-{n}" for n in (1, 2, 3)]
    for number, directory in enumerate(shards, 1):
        sweep(Plan(plan.name, plan.study, plan.cells, (number, 3)), directory)
    merged, records, damaged = merge_shards(shards, tmp_path / "merged")
    assert (len(records), damaged, len(merged.cells)) == (11, [], 11)
    assert tables(tmp_path / "merged") == tables(tmp_path / "whole")
    sweep(plan_of(3, "quick"), tmp_path / "other")
    with pytest.raises(UsageError, match="different studies"):
        merge_shards([shards[0], tmp_path / "other"], tmp_path / "mixed")
    with pytest.raises(UsageError, match="not a sweep directory"):
        merge_shards([tmp_path], tmp_path / "none")


def test_a_missing_shard_shows(tmp_path):
    plan = plan_of(4, "quick")
    sweep(Plan(plan.name, plan.study, plan.cells, (1, 2)), tmp_path / "shard")
    _, records, _ = merge_shards([tmp_path / "shard"], tmp_path / "merged")
    assert len(records) == 2
    assert (tmp_path / "merged" / "results.csv").read_text().count("missing") == 2


TROUBLES = {
    "out of memory": "oom",
    "never returns": "timeout",
    "dies": "died",
    "dies once": "ok",
    "raises": "failed",
    "refuses": "failed",
    "not a number": "failed",
    "talks": "ok",
    "none": "ok",
}


def test_each_trouble_ends_its_own_cell_only(tmp_path):
    plan = plan_of(0, "troubled", str(tmp_path), grid={"trouble": list(TROUBLES)})
    limits = Limits(time_s=1.5, memory_bytes=4 << 30, retries=1)
    outcome = sweep(plan, tmp_path / "out", 2, limits)
    ended = {str(cell.settings["trouble"]): outcome.records[cell.cell_id].status for cell in plan.cells}
    assert ended == TROUBLES
    assert outcome.exit_code == 5
    errors = {str(c.settings["trouble"]): outcome.records[c.cell_id].error for c in plan.cells}
    assert errors["raises"] == "ValueError: planted trouble"
    assert errors["refuses"] == "x: planted refusal"
    assert "SIGKILL" in errors["dies"]
    attempts = {str(c.settings["trouble"]): outcome.records[c.cell_id].attempts for c in plan.cells}
    assert (attempts["dies"], attempts["dies once"], attempts["raises"]) == (2, 2, 1)


def test_equal_configurations_run_once(tmp_path):
    study = Study("support.sweep_cells:counted", str(tmp_path))
    space = Space(grid={"x": ["1GiB", "1024MiB", "2GiB"]})
    bytes_of = {"1GiB": 1, "1024MiB": 1, "2GiB": 2}
    plan = lay_out("twice", study, space, (1, 0), lambda s: Resolved(bytes_of[str(s["x"])], 1.0))
    assert len(plan.cells) == 3
    assert len(plan.unique_cells()) == 2


def test_longest_first(tmp_path):
    order = []

    class Watch(Silent):
        def cell_ended(self, cell, record):
            order.append(cell.work)

    stop = StopRequest()
    run_sweep(plan_of(6, "quick"), tmp_path / "out", LocalRunner(1, Limits()), stop, Watch())
    stop.close()
    assert order == sorted(order, reverse=True)


def test_one_worker_serves_many_cells(tmp_path):
    outcome = sweep(plan_of(30, "quick"), tmp_path / "out", 1)
    assert len({record.summary["wall"]["pid"] for record in outcome.records.values()}) == 1


values = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)


@examples(50)
@given(st.dictionaries(st.sampled_from("abc"), values, max_size=3), values, st.integers(1, 3))
def test_a_space_is_the_product_of_its_parts(grid, column, draws):
    space = Space(
        grid=grid,
        columns={"z": column, "y": column},
        points=[{"p": 1}, {"p": 2, "q": 3}],
        draws={"r": Choice((1, 2)), "s": interval("1GiB", "1TiB", "log", "s")},
        draw_count=draws,
    )
    rows = list(space.rows(7))
    assert len(rows) == space.size() == math.prod(len(v) for v in grid.values()) * len(column) * 2 * draws
    assert rows == list(space.rows(7))
    assert all(row["z"] == row["y"] for row in rows)
    assert {frozenset(row) - {"q"} for row in rows} == {frozenset([*grid, "z", "y", "p", "r", "s"])}


@given(st.floats(0, 1), st.sampled_from(["linear", "log"]))
def test_an_interval_stays_inside(position, scale):
    value = interval("1GiB", "16GiB", scale, "x").value(position)
    assert 2**30 <= int(str(value).removesuffix("B")) <= 2**34
    assert 3 <= interval(3, 8, scale, "x").value(position) <= 8
    assert str(interval("16 blocks", "32 blocks", scale, "x").value(position)).endswith(" blocks")


def test_repeats_share_seeds_over_rows_and_keep_the_first():
    plan = plan_of(3, "quick", repeats=3)
    seeds = [cell.settings.get("seed") for cell in plan.cells]
    assert seeds == [None, repeat_seed(0, 1), repeat_seed(0, 2)] * 3
    assert {c.cell_id for c in plan_of(3, "quick").cells} < {c.cell_id for c in plan.cells}


losses = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20)


@given(losses)
def test_the_front_is_what_nothing_beats(rows):
    front = pareto_front(rows)
    assert front
    for index, row in enumerate(rows):
        beaten = any(all(x <= y for x, y in zip(o, row, strict=True)) and o != row for o in rows)
        assert (index in front) is not beaten


def test_goals_are_parsed():
    first, second = parse_objectives("ttft.p99:min, hit_rate:max")
    assert (first.metric, second.metric) == ("latency.ttft.p99", "cache.token_hit_rate")
    assert (first.loss(2.0), second.loss(0.5)) == (2.0, -0.5)
    with pytest.raises(UsageError, match="METRIC:min"):
        parse_objectives("ttft.p99")


GOOD = "scenario: base.yaml\ngrid:\n  x: [1, 2]\n"


def test_a_grid_of_a_billion_cells_is_refused_with_its_product(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(GOOD + "".join(f"  y{n}: {list(range(1000))}\n" for n in range(3)))
    with pytest.raises(UsageError, match=r"2 × 1000 × 1000 × 1000 = 2,000,000,000"):
        read_sweep_file(path)


def test_cells_over_other_input_files_are_other_cells():
    plans = [plan_of(3, "quick", files={"/data/trace": digest}) for digest in ("aa", "bb")]
    names = [{cell.cell_id for cell in plan.cells} for plan in plans]
    assert not names[0] & names[1]


@pytest.mark.parametrize("order", [("ok", "failed"), ("failed", "ok")])
def test_a_shard_that_did_a_cell_wins_over_one_that_failed_it(tmp_path, order):
    plan = plan_of(1, "quick")
    [cell] = plan.cells
    shards = []
    for number, status in enumerate(order, 1):
        directory = tmp_path / status
        claim(directory)
        store = CellStore(directory)
        store.create()
        keep_plan(Plan(plan.name, plan.study, plan.cells, (number, 2)), directory / "plan.json")
        store.save(CellRecord(cell.cell_id, status, {"y": 1.0} if status == "ok" else {}))
        shards.append(directory)
    _, records, damaged = merge_shards(shards, tmp_path / "merged")
    assert (records[cell.cell_id].status, damaged) == ("ok", [])


def test_files_of_models_and_gpus_are_inputs_of_a_sweep(tmp_path):
    """An edited model, GPU or table of links makes other cells, as an edited trace does."""
    from kvcache_sim.model.templates import new_gpu, new_model

    (tmp_path / "m.toml").write_text(new_model("llama-3-8b"))
    (tmp_path / "g.toml").write_text(new_gpu("h100"))
    (tmp_path / "l.csv").write_text("num_gpus,message_bytes,time_ms\n2,8,0.1\n")
    study = tmp_path / "sweep.yaml"
    study.write_text(
        "scenario:\n  model: m.toml\n  workload: {kind: conversational, requests: 5}\n"
        "  tiers: {gpu: {capacity: 2000 blocks}}\n"
        "  replica: {step_time: 'roofline:m.toml@g.toml:tp2', links: l.csv}\n"
        "grid: {seed: [1]}\n"
    )
    prepared, resolve = prepare(read_sweep_file(study))
    resolve({"seed": 1})
    assert {Path(path).name for path in prepared.files} == {"m.toml", "g.toml", "l.csv"}


def test_texts_and_their_tokenizer_and_a_policy_of_ones_own_are_inputs_of_a_sweep(tmp_path):
    """A checkpoint's folder stands for its configuration; a name of the catalogue is no file."""
    (tmp_path / "checkpoint").mkdir()

    def inputs(**changed):
        model = {
            "trace": SimpleNamespace(path="t", tokenizer="w.json"), "replica": SimpleNamespace(step_time="", links=None),
            "model": None, "cache": SimpleNamespace(policy="lru"),
        }  # fmt: skip
        return simulation._inputs(SimpleNamespace(model=SimpleNamespace(**model | changed)))

    assert inputs() == ["t", "w.json"]
    assert inputs(trace=SimpleNamespace(path="t", tokenizer=None)) == ["t"]
    assert inputs(trace=None) == []
    own = inputs(
        replica=SimpleNamespace(step_time="", links="l.csv"), model=str(tmp_path / "checkpoint"),
        cache=SimpleNamespace(policy="libcachesim:own.py:Mine"),
    )  # fmt: skip
    assert own == ["t", "w.json", "l.csv", str(tmp_path / "checkpoint" / "config.json"), "own.py"]
    named = inputs(
        replica=SimpleNamespace(step_time="", links="nvlink"), cache=SimpleNamespace(policy="own.py:Mine")
    )
    assert named == ["t", "w.json", "own.py"]


@pytest.mark.parametrize(
    ("low", "high", "scale", "found"),
    [
        (1, 2, "linear", (1, 2, False, "", True)),
        (1, 2.5, "linear", (1, 2.5, False, "", False)),
        (0.1, 2, "log", (0.1, 2, True, "", False)),
        (-1, 0, "linear", (-1, 0, False, "", True)),
        ("1KiB", "2KiB", "linear", (1024, 2048, False, "B", True)),
        ("1ms", "1s", "log", (10**6, 10**9, True, "ns", True)),
        ("3 blocks", "4 blocks", "linear", (3, 4, False, " blocks", True)),
        (2, 2, "linear", "empty range.*expected low < high$"),
        (0, 2, "log", "empty range.*expected low < high, both above zero$"),
        (1, "2KiB", "linear", "bounds with different units"),
        (1, 2, "root", "unknown scale"),
        ("3 block", "4 blocks", "linear", "not a bound"),
        ("x blocks", "4 blocks", "linear", "not a bound"),
        (True, 2, "linear", "not a bound"),
        (1, float("inf"), "linear", "not a bound"),
    ],
)
def test_a_range_is_read_by_its_bounds(low, high, scale, found):
    if isinstance(found, str):
        with pytest.raises(UsageError, match=found):
            interval(low, high, scale, "w")
    else:
        one = interval(low, high, scale, "w")
        assert (one.low, one.high, one.logarithmic, one.unit, one.whole) == found


@pytest.mark.parametrize(
    ("read", "value", "found"),
    [
        (studies._points, None, []),
        (studies._points, [{"seed": 1}], [{"seed": 1}]),
        (studies._points, [], "not a list of settings"),
        (studies._points, {"seed": 1}, "not a list of settings"),
        (studies._dimension, {"choice": [1, 2]}, Choice((1, 2))),
        (studies._dimension, {"choice": []}, "not a choice"),
        (studies._dimension, {"choice": 3}, "not a choice"),
        (studies._dimension, {"choice": [1], "low": 2}, "not a choice"),
        (studies._dimension, {"low": 1}, "no range"),
        (studies._dimension, {"high": 1}, "no range"),
        (studies._dimension, {"low": 1, "high": 2}, interval(1, 2, "linear", "w")),
        (studies._dimension, {"low": 1, "high": 2, "scale": "log"}, interval(1, 2, "log", "w")),
    ],
)
def test_parts_of_a_study_are_read_or_refused(read, value, found):
    if isinstance(found, str):
        with pytest.raises(UsageError, match=found):
            read(value, "w")
    else:
        assert read(value, "w") == found


@pytest.mark.parametrize(
    ("space", "line"),
    [
        (Space(grid={"a": [1]}, columns={"b": [1, 2], "c": [3, 4]}, points=[{"d": 1}]), ""),
        (Space(columns={"b": [1, 2], "c": [3]}), "zipped lists differ in length"),
        (Space(grid={"a": [1]}, columns={"a": [1]}), "a is set twice; got grid and zip"),
        (Space(grid={"a": [1]}, points=[{"b": 1}, {"a": 2}]), "a is set twice; got grid and list"),
        (
            Space(points=[{"b": 1}], draws={"b": Choice((1,))}, draw_count=1),
            "b is set twice; got list and random",
        ),
    ],
)
def test_a_setting_comes_from_one_part_of_a_space(space, line):
    if line:
        with pytest.raises(UsageError, match=line):
            studies._check_space(space, "w")
    else:
        studies._check_space(space, "w")


def test_the_best_row_is_the_first_of_the_least_or_the_most():
    rows = [{"n": 1, "x": None}, {"n": 2, "x": 5}, {"n": 3, "x": 4.0}, {"n": 4, "x": 4}, {"n": 5, "x": 5.0}]
    assert [best_row(rows, "x", largest)["n"] for largest in (False, True)] == [3, 2]
    with pytest.raises(UsageError, match="no cell has this figure; got y"):
        best_row(rows, "y")


def test_the_memory_of_a_curve_is_at_least_what_python_takes():
    assert [parse_memory(text) for text in ("", f"{LEAST_BYTES}B", "4GiB")] == [0, LEAST_BYTES, 4 << 30]
    with pytest.raises(UsageError, match="--memory: too little memory"):
        parse_memory(f"{LEAST_BYTES - 1}B")


@pytest.mark.parametrize(("parent", "ends"), [(70, []), (71, [1])])
def test_a_worker_whose_parent_died_before_it_asked_ends(monkeypatch, parent, ends):
    asked, ended = [], []
    monkeypatch.setattr(
        worker.ctypes, "CDLL", lambda _: SimpleNamespace(prctl=lambda *given: asked.append(given))
    )
    monkeypatch.setattr(worker.os, "getppid", lambda: parent)
    monkeypatch.setattr(worker.os, "_exit", ended.append)
    worker.die_with_parent(70)
    assert asked == [(1, signal.SIGKILL)]
    assert ended == ends


@pytest.mark.parametrize(
    ("hard", "limits"), [(resource.RLIM_INFINITY, (90, -1)), (80, (80, 80)), (100, (90, 100))]
)
def test_memory_is_limited_up_to_what_a_process_may_have(monkeypatch, hard, limits):
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *own: given.append(own))
    worker.limit_memory(90)
    assert given == [(resource.RLIMIT_AS, limits)]


@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (None, "ok", ""),
        (MemoryError(), "oom", "out of memory: the cell's limit was reached"),
        (UsageError("wrong", where="here"), "failed", str(UsageError("wrong", where="here"))),
        (ValueError("a\n  b" + "c" * 600), "failed", "ValueError: a b" + "c" * 497),
        ({"x": object()}, "failed", None),
    ],
)
def test_each_end_of_a_cell_is_a_status(raised, status, error):
    def function(study, cell):
        if isinstance(raised, Exception):
            raise raised
        return raised or {"rate": 3}

    found = worker.run_cell(function, None, None)
    assert found["status"] == status
    assert found["summary"] == ({"rate": 3} if status == "ok" else {})
    assert error is None or found["error"] == error


def test_messages_of_a_worker_are_whole_or_none():
    reader, writer = os.pipe()
    worker.send(writer, {"a": [1, "é"]})
    worker.send(writer, 5)
    assert (worker.receive(reader), worker.receive(reader)) == ({"a": [1, "é"]}, 5)
    os.write(writer, b"\x00\x00\x00\x09half")
    os.close(writer)
    assert worker.receive(reader) is None
    assert worker.receive(reader) is None
    os.close(reader)


@pytest.mark.parametrize("values", ["1", "", 5, [], {}, {1: 2}, None])
def test_values_of_a_grid_in_python_are_a_list(values):
    with pytest.raises(UsageError, match="not values to try") as refused:
        settings_space({"a.b": values}, [])
    assert refused.value.where == "grid: a.b"


def test_a_grid_in_python_names_a_tiers_capacity_by_its_tier():
    grid = {
        "tiers.cpu": ["1GiB", "2GiB"],
        "tiers.disk": [None, "1TB"],
        "tiers.cpu.policy": ["lru"],
        "cluster.machines": (1, 2),
    }
    space = settings_space(grid, [{"a": {"b": 1}, "c": "x"}])
    assert space.grid == {
        "tiers.cpu.capacity": ["1GiB", "2GiB"], "tiers.disk": [None, "1TB"], "tiers.cpu.policy": ["lru"], "cluster.machines": [1, 2]
    }  # fmt: skip
    assert space.points == [{"a.b": 1, "c": "x"}]
