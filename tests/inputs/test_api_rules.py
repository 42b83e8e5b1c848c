"""The Python interface by hand: how settings are laid over one another, what is a trace, where cells run."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.api import replays, simulate, sizing, sweeping
from kvcache_sim.api.html import html_list, html_table
from kvcache_sim.api.settings import lay_over, plain
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sizing.question import Answer, Question
from kvcache_sim.extras.study.sweeps.cell import CellRecord
from kvcache_sim.extras.study.sweeps.study import read_sweep_file
from kvcache_sim.report import plot
from kvcache_sim.report.picture import NothingToDraw, Picture, Table
from kvcache_sim.scenario.yaml_tree import Tree


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"router": "round-robin"}, {"router": {"policy": "round-robin"}}),
        ({"tiers": {"cpu": "4GiB", "gpu": {"capacity": "1GiB"}}}, {"tiers": {"cpu": {"capacity": "4GiB"}, "gpu": {"capacity": "1GiB"}}}),
        ({"tiers.cpu": 3, "tiers.cpu.policy": "lru"}, {"tiers": {"cpu": {"capacity": 3, "policy": "lru"}}}),
        ({"cluster": 4, "cluster.pool": "8GiB"}, {"cluster": {"machines": 4, "pool": {"capacity": "8GiB"}}}),
        ({"channels": {"net": "ib"}, "fetch": None, "write": False}, {"channels": {"net": {"preset": "ib"}}, "fetch": None, "write": False}),
        ({"workload": {"kind": "a", "x": 1}, "workload.x": 2}, {"workload": {"kind": "a", "x": 2}}),
        ({"workload": {"y": 1}}, {"workload": {"x": 0, "y": 1}}),
        ({"slo.x": 1, "slo": {"kind": "a"}}, {"slo": {"x": 1, "kind": "a"}}),
        ({"cache": {}, "seed": np.int64(7)}, {"cache": {}, "seed": 7}),
        ({"trace": Path("t.jsonl"), "slo": {"a": (1, 2)}}, {"trace": {"path": "t.jsonl"}, "slo": {"a": [1, 2]}}),
    ],
)  # fmt: skip
def test_settings_are_laid_over_those_there_are(settings, values):
    """Text and numbers stand for a section's main key; a workload of a kind replaces the one before it."""
    tree = Tree()
    if settings == {"workload": {"y": 1}} or "kind" in dict(settings.get("workload", {})):
        tree.values["workload"] = {"x": 0}
    lay_over(tree, settings)
    assert tree.values == values


def test_a_value_that_no_setting_has_is_named_by_its_key():
    for value, where, got in (
        ({"a": [0, {"b": {1}}]}, "k.a[1].b", "set"),
        (np.zeros(2), "k", "ndarray"),
        (b"x", "k", "bytes"),
    ):
        with pytest.raises(UsageError, match="not a setting") as refused:
            plain(value, "k")
        assert (refused.value.where, refused.value.got) == (where, got)
    assert plain([np.float32(0.5), True, None, {"a": np.bool_(False)}], "k") == [0.5, True, None, {"a": False}]  # fmt: skip


def test_settings_to_try_are_columns_and_whole_sets():
    space = sweeping.settings_space(
        {"tiers.cpu": ["1GiB", "2GiB"], "tiers.gpu": [{"capacity": "1GiB"}], "tiers.cpu.policy": ["lru"], "seed": (1, 2)},
        [{"tiers": {"gpu": "4GiB"}, "fleet": {"scaling": "queue"}}, {"router": "random"}],
    )  # fmt: skip
    assert space.grid == {"tiers.cpu.capacity": ["1GiB", "2GiB"], "tiers.gpu": [{"capacity": "1GiB"}], "tiers.cpu.policy": ["lru"], "seed": [1, 2]}  # fmt: skip
    assert space.points == [{"tiers.gpu.capacity": "4GiB", "fleet.scaling.policy": "queue"}, {"router.policy": "random"}]  # fmt: skip
    for values in ("ab", [], 3, {1: 2}):
        with pytest.raises(UsageError, match="not values to try"):
            sweeping.settings_space({"seed": values}, ())


def test_cells_run_here_in_turn_or_by_processes_in_a_directory(monkeypatch):
    """A cell is run once; cells that ``further`` adds are run too, until it adds none."""
    ran, asked = [], []
    cells = {name: SimpleNamespace(cell_id=name) for name in "abcd"}
    plan = SimpleNamespace(
        study=SimpleNamespace(cell_function="f"), own_cells=lambda: [cells[n] for n in "aba"]
    )

    def run_cell(function, study, cell):
        ran.append((function, study, cell.cell_id))
        return {"status": "ok", "summary": {"of": cell.cell_id}, "error": None}

    def further(known, records):
        asked.append(([cell.cell_id for cell in known], sorted(records)))
        return {3: [cells["c"], cells["b"]], 5: [cells["d"]]}.get(len(known), ())

    monkeypatch.setattr(sweeping, "load_cell_function", {"f": "function"}.__getitem__)
    monkeypatch.setattr(sweeping, "run_cell", run_cell)
    monkeypatch.setattr(
        sweeping, "distinct", lambda added: list({cell.cell_id: cell for cell in added}.values())
    )
    monkeypatch.setattr(sweeping, "result_rows", lambda cells, records: (cells, records))
    found, records = sweeping.run_cells(plan, None, 1, further)
    assert [cell.cell_id for cell in found] == list("abacbd")
    assert ran == [("function", plan.study, name) for name in "abcd"]
    assert asked == [(list("aba"), list("ab")), (list("abacb"), list("abc")), (list("abacbd"), list("abcd"))]
    assert records["c"] == CellRecord("c", "ok", {"of": "c"}, None)
    given = []
    outcome = SimpleNamespace(cells=["x"], records={"x": 1})
    monkeypatch.setattr(sweeping, "run_sweep", lambda *all_of_it: given.append(all_of_it) or outcome)
    assert sweeping.run_cells(plan, "folder", 3, further) == (["x"], {"x": 1})
    (asked_plan, folder, runner, _, _, then) = given[0]
    assert (asked_plan, folder, runner._jobs, then) == (plan, Path("folder"), 3, further)
    assert len(ran) == 4


@pytest.mark.parametrize(("directory", "jobs", "where"), [(None, 1, None), (None, 2, "folder"), ("own", 1, "own"), ("own", 2, "own")])  # fmt: skip
def test_several_processes_need_a_directory(monkeypatch, tmp_path, directory, jobs, where):
    @contextmanager
    def requests_in_a_file(asked, given):
        yield SimpleNamespace(directory=tmp_path, written=[asked, given]), "folder"

    def run_cells(plan, *asked):
        assert asked == (where, jobs)
        assert plan.space == sweeping.Space(grid={"seed": [1, 2]}, points=[])
        assert (plan.scenario, plan.repeats, plan.seed) == (["scenario", "trace"], 3, 0)
        return [{"status": "failed"}, {"status": "ok"}]

    for name, own in (("as_scenario", str), ("resolve_requests", lambda *given: (given[1], given[0])), ("plan_sweep", lambda study: study),
                      ("requests_in_a_file", requests_in_a_file), ("run_cells", run_cells)):  # fmt: skip
        monkeypatch.setattr(sweeping, name, own)
    found = kv.sweep("trace", "scenario", grid={"seed": [1, 2]}, repeats=3, jobs=jobs, directory=directory)
    assert repr(found) == "<Sweep of 2 cells, 1 failed>"


@pytest.mark.parametrize(
    ("directory", "jobs", "where"), [(None, 1, None), (None, 2, "folder"), ("own", 1, "own")]
)
@pytest.mark.parametrize(("need", "pools"), [("", ""), ("2.5/s", "auto")])
def test_a_capacity_is_asked_for_what_its_settings_say(monkeypatch, directory, jobs, where, need, pools):
    further = SimpleNamespace(plan="plan", answer=lambda rows: Answer(tuple(rows), 7.0))
    asked = []
    for name, own in (
        ("as_scenario", str), ("resolve_requests", lambda *given: (given[1], given[0])), ("settings_space", lambda *given: given),
        ("requests_in_a_file", lambda *given: nullcontext((given, "folder"))), ("study_of", lambda *given: given),
        ("plan_capacity", lambda *given: asked.append(given) or further), ("run_cells", lambda *given: asked.append(given) or [{"cell": 3}]),
    ):  # fmt: skip
        monkeypatch.setattr(sizing, name, own)
    found = kv.capacity(
        "trace",
        "scenario",
        slo={"ttft": "1s"},
        attain="90%",
        need=need,
        pools=pools,
        grid={"seed": [1]},
        jobs=jobs,
        directory=directory,
    )
    study = (("scenario", "trace"), ({"seed": [1]}, ()))
    rate = 2.5 if need else None
    assert asked == [(study, Question(0.9), {"ttft": "1s"}, (1, 1), rate, bool(pools)), ("plan", where, jobs, further)]  # fmt: skip
    assert (found.rows, found.attain, found._answer().need_per_s) == ([{"cell": 3}], 0.9, 7.0)


def test_a_study_runs_each_row_of_one_scenario_once(tmp_path):
    """Its first seed and its limits are those of a study file that states none."""
    scenario = SimpleNamespace(directory=tmp_path, written={"seed": 3})
    (tmp_path / "sweep").write_text("scenario: {seed: 3}\ngrid: {cache.policy: [lru, fifo]}\n")
    found = read_sweep_file(tmp_path / "sweep")
    space = sweeping.Space(grid={"cache.policy": ["lru", "fifo"]}, points=[])
    assert sweeping.study_of(scenario, space) == replace(found, repeats=1)


def test_a_capacity_is_drawn_where_a_candidate_holds_a_rate(monkeypatch):
    steps = []
    monkeypatch.setattr(sizing, "require_plotting", lambda: steps.append("library"))
    monkeypatch.setattr(sizing.text, "draw", lambda answer: steps.append(answer) or drawn)
    found = sizing.Capacity([{"capacity.rate_per_s": 2.0}], 0.9)
    drawn = Picture("capacity", "Capacity", "rates", [{"rate": 2.0}], None, Table((), ()))
    assert found.plot().data == [{"rate": 2.0}]
    assert steps == ["library", found._answer()]
    drawn = NothingToDraw("capacity", "Capacity", "no rate")
    with pytest.raises(UsageError, match="nothing to draw: no rate"):
        found.plot()


def test_given_requests_are_written_for_other_processes():
    asked = kv.Scenario(**{"cache.policy": "fifo"})
    columns = {"arrival_s": [0.0], "input_tokens": [512], "output_tokens": [1], "block_ids": [[1]]}
    with sweeping.requests_in_a_file(asked, None) as (written, folder):
        assert written is asked
        assert not [*folder.parent.iterdir()]
    trace = kv.make_trace(columns, block_size=512)
    with sweeping.requests_in_a_file(asked, trace) as (written, folder):
        (file,) = folder.parent.iterdir()
        assert written.written["trace"] == {"path": str(file), "block_size": 512, "time_order": "keep"}
        assert kv.read_trace(file).block_ids.tolist() == trace.block_ids.tolist()
    assert not folder.parent.exists()


def test_the_requests_of_a_run_are_those_given_or_the_scenarios(tmp_path, monkeypatch):
    """A path is made absolute but ``-``; a workload replaces a trace, and one trace alone can be given."""
    own = kv.Scenario(workload={"kind": "diverse", "requests": 3}, **{"cache.policy": "fifo"})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text("")

    def resolved(requests, **settings):
        scenario, trace = simulate.resolve_requests(requests, own, settings)
        return {name: scenario.written.get(name) for name in ("trace", "workload", "cache")}, trace

    same, none = resolved(None)
    assert (same, none) == ({"trace": None, "workload": {"kind": "diverse", "requests": 3}, "cache": {"policy": "fifo"}}, None)  # fmt: skip
    for path, located in (
        ("t.jsonl", str(tmp_path / "t.jsonl")),
        (Path("t.jsonl"), str(tmp_path / "t.jsonl")),
        ("-", "-"),
    ):
        found, none = resolved(path, seed=3)
        assert (found["trace"], found["workload"], none) == ({"path": located}, None, None)
    assert resolved("t.jsonl", workload={"output_tokens": 2})[0]["workload"] == {"output_tokens": 2}
    found, none = resolved({"kind": "diverse", "requests": 9})
    assert (found["trace"], found["workload"], none) == (None, {"kind": "diverse", "requests": 9}, None)
    columns = {"arrival_s": [0.0, 1.0], "input_tokens": [512] * 2, "output_tokens": [1] * 2, "block_ids": [[1]] * 2}  # fmt: skip
    for requests in (columns, kv.make_trace(columns)):
        found, trace = resolved(requests)
        assert (found["trace"], found["workload"], len(trace)) == (None, None, 2)
        assert found["cache"] == {"policy": "fifo", "block_size": 512}
        assert resolved(requests, cache={"block_size": 8})[0]["cache"]["block_size"] == 8
        assert resolved(requests, workload={"output_tokens": 2})[0]["workload"] == {"output_tokens": 2}
        for key in ("trace", "workload"):
            with pytest.raises(UsageError, match="requests are given already"):
                resolved(requests, **{key: {"kind": "x"}})


def test_a_picture_is_drawn_of_runs_with_their_traces(monkeypatch):
    steps = []
    monkeypatch.setattr(plot, "require_plotting", lambda: steps.append("library"))
    monkeypatch.setattr(plot, "find_trace", lambda run: steps.append(run))
    monkeypatch.setattr(plot, "draw", lambda kind, runs: steps.append((kind, runs)) or drawn)
    monkeypatch.setattr(plot, "check_suffix", lambda suffix: steps.append(suffix))
    monkeypatch.setattr(plot, "encoded", lambda picture, suffix: (picture, suffix))
    drawn = "picture"
    assert plot.picture_bytes("misses", ["a", "b"], ".svg") == ("picture", ".svg")
    assert steps == [".svg", "library", "a", "b", ("misses", ["a", "b"])]
    drawn = NothingToDraw("misses", "Misses", "no sample")
    with pytest.raises(UsageError, match="nothing to draw for misses: no sample"):
        plot.picture_of("misses", [])


def test_cells_of_a_notebook_are_texts_at_the_left_and_figures_at_the_right():
    row = html_table(Table(("a", "b", "c", "d"), (("<x>", None, 1234567, 1234.56789),)))
    assert row.partition("<tbody>")[2] == (
        '<tr><td style="text-align:left">&lt;x&gt;</td><td style="text-align:right">–</td>'
        '<td style="text-align:right">1,234,567</td><td style="text-align:right">1,234.57</td></tr></tbody></table>'
    )
    assert (html_list([]), html_list(["a", "<"])) == ("", "<ul><li>a</li><li>&lt;</li></ul>")


def test_a_capacity_is_the_highest_rate_that_a_candidate_holds():
    rows = [{"capacity.rate_per_s": rate} for rate in (2.0, 5.0, None, 3.0)]
    assert sizing.Capacity(rows, 0.9).rate_per_s == 5.0
    assert sizing.Capacity(rows[2:3], 0.9).rate_per_s is None


@pytest.mark.parametrize("kinds", [("groups",), ("groups", "full_attention")])
def test_a_curve_of_groups_has_a_row_for_each_of_its_kinds(kinds):
    points = [
        {"capacity_blocks": n, "capacity_bytes": 9 * n} | {kind: {"hit_rate": n / 8} for kind in kinds}
        for n in (2, 4)
    ]
    curve = replays.GroupCurve({"points": points, "model": "m"})
    assert curve.to_arrow().to_pylist() == [
        {"kind": kind, "capacity_blocks": n, "capacity_bytes": 9 * n, "hit_rate": n / 8}
        for n in (2, 4) for kind in kinds
    ]  # fmt: skip
    assert repr(curve) == f"<GroupCurve of 2 capacities: {', '.join(kinds)}>"
    cells = curve._repr_html_().partition("<tbody>")[2]
    assert [cell.partition("<")[0] for cell in cells.split('">')[1:]] == [
        text for n in (2, 4) for text in (str(n), *[f"{100 * n / 8:.1f} %"] * len(kinds))
    ]
    with pytest.raises(UsageError, match="no knee; got m"):
        _ = curve.knee
    assert repr(replays.Curve({"points": []})) == "<Curve of 0 capacities: >"


def test_a_replay_shows_its_figures_and_its_rows():
    columns = {"request": np.array([0, 1]), "missed": [3, 4]}
    replay = replays.CacheReplay("lru", {"hit_rate": 0.5, "hits": 4, "causes": {"cold": 2}}, columns)
    assert replay.requests.to_pylist() == [{"request": 0, "missed": 3}, {"request": 1, "missed": 4}]
    assert repr(replay) == "<CacheReplay lru: 50.0 % of tokens hit, 3 figures>"
    assert replays.CacheReplay("lru", {"hits": 4}, None).requests is None
    assert repr(replays.CacheReplay("lru", {"hits": 4}, None)) == "<CacheReplay lru, 1 figures>"
    assert ("hits" in replay._repr_html_(), "causes" in replay._repr_html_()) == (True, False)
