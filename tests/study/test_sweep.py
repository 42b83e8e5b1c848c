"""Cells of a sweep and its output: seeds, shards, equal tables for any number of workers, estimates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.root import repeat_seed
from kvcache_sim.cli.reading import LEAST_BYTES, parse_memory
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Study
from kvcache_sim.extras.study.sweeps.plan import estimate, keep_plan
from kvcache_sim.extras.study.sweeps.single_run import single_run
from kvcache_sim.extras.study.sweeps.store import claim
from kvcache_sim.metrics.objectives import pareto_front
from support.product.sweeps import CellStore, Plan, Resolved, Shard, Space, lay_out, merge_shards
from support.sweep_driver import plan_of
from support.sweep_runs import sweep, tables


def test_one_two_and_eight_workers_write_the_same_bytes(tmp_path):
    plan = plan_of(17, "quick")
    for jobs in (1, 2, 8):
        assert sweep(plan, tmp_path / str(jobs), jobs).exit_code == 0
    assert tables(tmp_path / "1") == tables(tmp_path / "2") == tables(tmp_path / "8")


def part(plan, number, of):
    return Plan(plan.name, plan.study, plan.cells, Shard(number, of))


def test_shards_merged_are_the_whole_sweep_and_a_missing_one_shows(tmp_path):
    plan = plan_of(11, "quick")
    sweep(plan, tmp_path / "whole")
    shards = [tmp_path / f"shard-{n}" for n in (1, 2, 3)]
    for number, directory in enumerate(shards, 1):
        sweep(part(plan, number, 3), directory)
    merged, records, damaged = merge_shards(shards, tmp_path / "merged")
    assert (len(records), damaged, len(merged.cells)) == (11, [], 11)
    assert tables(tmp_path / "merged") == tables(tmp_path / "whole")
    _, records, _ = merge_shards(shards[:1], tmp_path / "first")
    assert len(records) == 4
    assert (tmp_path / "first" / "results.csv").read_text().count("missing") == 7
    sweep(plan_of(3, "quick"), tmp_path / "other")
    with pytest.raises(UsageError, match="different studies"):
        merge_shards([shards[0], tmp_path / "other"], tmp_path / "mixed")
    with pytest.raises(UsageError, match="not a sweep directory"):
        merge_shards([tmp_path], tmp_path / "none")


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
        keep_plan(part(plan, number, 2), directory / "plan.json")
        store.save(CellRecord(cell.cell_id, status, {"y": 1.0} if status == "ok" else {}))
        shards.append(directory)
    _, records, damaged = merge_shards(shards, tmp_path / "merged")
    assert (records[cell.cell_id].status, damaged) == ("ok", [])


def test_shards_share_out_all_cells_and_equal_cells_run_once():
    cells = [Cell(n, "abacaba"[n], {}) for n in range(7)]
    shards = [Plan("s", Study("m:f", ""), tuple(cells), Shard(number, 3)) for number in (1, 2, 3)]
    assert [[cell.index for cell in one.own_cells()] for one in shards] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [sorted(cell.index for cell in one.unique_cells()) for one in shards] == [[0, 3], [1, 4], [2, 5]]


def laid_out(repeats=1, files=None, **grid):
    study = Study("m:f", "", files=files or {})
    return lay_out(
        "s", study, Space(grid=grid), repeats, 7, lambda row: Resolved(dict(row), row.get("x", 1))
    ).cells


def test_repeats_have_seeds_of_their_own_unless_the_study_sets_them():
    made = laid_out(3, x=[3, 4])
    rows = [(cell.index, cell.settings["x"], cell.repeat, cell.work) for cell in made]
    assert rows == [(n, 3 + n // 3, n % 3, 3 + n // 3) for n in range(6)]
    assert [cell.settings.get("seed") for cell in made] == [None, repeat_seed(7, 1), repeat_seed(7, 2)] * 2
    assert len({cell.cell_id for cell in made}) == 6
    assert {cell.cell_id for cell in laid_out(x=[3, 4])} < {cell.cell_id for cell in made}
    assert len(laid_out(1, seed=[1, 2])) == 2
    with pytest.raises(UsageError, match="repeats derive it too"):
        laid_out(2, seed=[1, 2])


def test_cells_over_other_input_files_are_other_cells():
    names = [{cell.cell_id for cell in laid_out(files={"/t": digest}, x=[3, 4])} for digest in ("aa", "bb")]
    assert not names[0] & names[1]


losses = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20)


@given(losses)
def test_the_front_is_what_nothing_beats(rows):
    front = pareto_front(rows)
    assert front
    for index, row in enumerate(rows):
        beaten = any(all(x <= y for x, y in zip(o, row, strict=True)) and o != row for o in rows)
        assert (index in front) is not beaten


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
    works = {"a": 10.0, "b": 20.0, "c": 120.0, "d": 0.0}
    cells = [Cell(n, name, {}, 0, works[name]) for n, name in enumerate("abcda")]
    statuses = {name: "failed" if s is None else "ok" for name, s in seconds.items()}
    records = {name: CellRecord(name, statuses[name], elapsed_s=s or 1.0) for name, s in seconds.items()}
    own = estimate(Plan("p", Study("m:f", ""), tuple(cells), Shard(*shard)), records)
    assert (own.rows, own.distinct, own.finished, own.is_measured) == (*found[:3], found[4])
    assert own.cpu_s == pytest.approx(found[3])
    left = own.distinct - own.finished
    assert [own.wall_s(jobs) for jobs in (1, 2, 9)] == [own.cpu_s / max(1, min(n, left)) for n in (1, 2, 9)]


def test_a_cell_alone_has_no_setting_that_only_others_use(tmp_path):
    """A router chooses between machines, and a policy of a tier that is not there evicts nothing."""
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}\n')
    chosen = {"router.policy": "longest-prefix", "cluster.machines": 1, "replica.max_num_seqs": 7}
    words = single_run(trace, None, ["seed=3"], chosen)
    assert words[:3] == ["kvsim", "simulate", str(trace)]
    assert [word for word in words[3:] if word != "--set"] == [
        "seed=3",
        "cluster.machines=1",
        "replica.max_num_seqs=7",
    ]
    chosen["cluster.machines"] = 2
    assert "router.policy=longest-prefix" in single_run(trace, None, [], chosen)


def test_the_memory_of_a_curve_is_at_least_what_python_takes():
    assert [parse_memory(text) for text in ("", f"{LEAST_BYTES}B", "4GiB")] == [0, LEAST_BYTES, 4 << 30]
    with pytest.raises(UsageError, match="--memory"):
        parse_memory(f"{LEAST_BYTES - 1}B")
