"""Verbs over stand-ins of all that they call: what options hand on, what is printed first, and exit codes."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from kvcache_sim.cli import optimize, sweep
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.study.sizing.question import Question
from kvcache_sim.extras.study.sweeps.optimize import Goal, Search
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.report.picture import NothingToDraw
from kvcache_sim.report.timeline.build import Selection
from kvcache_sim.simulation import RunOptions


def as_text(paths):
    return [f"run {path}" for path in paths]


RUNS = ("open_runs", [Path("a"), Path("b")])
MADE = [
    ("report a b", [("require_plotting",), RUNS, ("report_page", ["run a", "run b"]), ("write_new", Path("report.html"), b"page", False)]),
    ("report a b -o x.html --force", [("require_plotting",), RUNS, ("report_page", ["run a", "run b"]), ("write_new", Path("x.html"), b"page", True)]),
    ("plot a b ttft", [RUNS, ("picture_bytes", "ttft", ["run a", "run b"], ".svg"), ("write_new", Path("ttft.svg"), b"drawn", False)]),
    ("plot a b ttft -o x.png --force", [RUNS, ("picture_bytes", "ttft", ["run a", "run b"], ".png"), ("write_new", Path("x.png"), b"drawn", True)]),
    ("timeline a", [("timeline", "run a", Selection(None, None)), ("write_new", Path("timeline.json.gz"), b"line", False)]),
    ("timeline a --window 10s..20s --trace-requests 3", [("timeline", "run a", Selection((10**10, 2 * 10**10), 3)), ("write_new", Path("timeline.json.gz"), b"line", False)]),
    ("timeline a --window ..20s -o y --force", [("timeline", "run a", Selection((0, 2 * 10**10), None)), ("write_new", Path("y"), b"line", True)]),
    ("timeline a --window 10s..", [("timeline", "run a", Selection((10**10, 2**62), None)), ("write_new", Path("timeline.json.gz"), b"line", False)]),
    *((f"timeline a --window {window}", None) for window in ("10s", "20s..10s", "10s..10s")),
    ("plot ttft", None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), MADE)
def test_files_are_made_of_finished_runs(calls, capsys, words, expected):
    log = calls(
        base__output__write_new=None, report__finished__open_runs=as_text, report__plotting__require_plotting=None,
        report__run_report__report_page="page", report__plot__picture_bytes=b"drawn",
        report__timeline__build__timeline=lambda opened, selection, warn: warn("a line") or b"line",
    )  # fmt: skip
    assert kvsim(words.split()) == (0 if expected else 2)
    said = capsys.readouterr().err
    if expected is None:
        assert "a picture needs RUN and KIND" in said or "not a window" in said
        return
    if words.startswith("timeline"):
        assert said.startswith("warning: a line\n")
        assert log.pop(0) == ("open_runs", [Path("a")])
        log[0] = log[0][:3]
    assert log == expected
    assert f"wrote {expected[-1][1]}" in said


@pytest.mark.parametrize("same", [False, True])
def test_a_reproduction_names_each_digest(calls, capsys, same):
    outcome = SimpleNamespace(digests={"a": ("x" * 30, "x" * 30), "b": ("y" * 24, "z" * 30)}, notes=["n"], is_same=same)  # fmt: skip
    log = calls(report__reproduction__reproduce=outcome)
    assert kvsim(["reproduce", "r", *["--plugins"] * same]) == (0 if same else 1)
    assert log == [("reproduce", Path("r"), same)]
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"a        {'x' * 24} = {'x' * 24}", f"b        {'y' * 24} ≠ {'z' * 24}", "reproduced" if same else "NOT reproduced"]  # fmt: skip
    assert printed.err == "note: n\n"


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_each_side_is_held_against_the_first(calls, capsys, breaks, as_json):
    """A condition of B alone is breached; sides are open while they are compared, and no longer."""

    def opened(paths, repeats, stack, shows):
        stack.callback(log.append, "closed")
        return [[SimpleNamespace(label=path.name, summary=path.name)] for path in paths]

    def threshold(text):
        return SimpleNamespace(text=text, holds=lambda own, base: breaks and (own, base, text) == ("b", "a", "x > 1"))  # fmt: skip

    def compared(sides, rank):
        return SimpleNamespace(figures={"é": [one.label for (one,) in sides]}, text=lambda settings: f"table {rank} {settings}")  # fmt: skip

    log = calls(
        report__compare__sides__open_sides=opened,
        api__comparing__Comparison=compared,
        metrics__thresholds__parse_threshold=threshold,
    )
    more = ["--repeats", "3", "--rank-saturated", "--format", "json"] if as_json else ["--settings"]
    asked = ["compare", "a", "b", "c", "--fail-if", "x > 1", "--fail-if", "y > 1", *more]
    assert kvsim(asked) == (4 if breaks else 0)
    assert log[2][:3] + log[2][4:] == ("open_sides", [Path(name) for name in "abc"], 3 if as_json else 1, not as_json)  # fmt: skip
    assert (log[3][0], log[3][2], log[4:]) == ("Comparison", as_json, ["closed"])
    printed = capsys.readouterr()
    assert printed.out == ('{\n  "é": [\n    "a",\n    "b",\n    "c"\n  ]\n}\n' if as_json else "table False True\n")  # fmt: skip
    assert printed.err == ("threshold breached: b: x > 1\n" if breaks else "")
    assert kvsim(["compare", "a", "b"]) == 0
    assert kvsim(["compare", "a"]) == 2
    assert "nothing to compare with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("", 0, "starter"), ("--preset p", 0, "packaged\n"), ("--preset p --from l", 2, "--from, --preset: one at a time"), ("--flags f --preset p", 2, "--flags, --preset: one at a time"),
        ("--from l", 0, "of l h100 "), ("--from l --gpu g --model m", 0, "of l g m"), ("--flags f", 0, "own vllm f\nno flag of vllm: a.b\n"),
        ("--flags . --engine sglang", 0, "own sglang scenario.yaml True .\nno flag of sglang: a.b\n"),
    ],
)  # fmt: skip
def test_a_scenario_to_start_from(calls, capsys, tmp_path, monkeypatch, words, code, expected):
    (tmp_path / "p").write_text("packaged\n")
    monkeypatch.chdir(tmp_path)
    calls(
        scenario__presets__preset_path=lambda name, where: tmp_path / name, scenario__presets__starter_text="starter",
        scenario__launch__to_scenario__scenario_of_launch=lambda *asked: "of " + " ".join(asked),
        scenario__load__load_scenario=lambda path: SimpleNamespace(resolved=path),
        scenario__load__read_scenario=lambda path, regular: f"{path} {regular}",
        scenario__load__scenario_of_run=lambda text, folder: SimpleNamespace(resolved=f"{text} {folder}"),
        scenario__launch__to_line__launch_of_scenario=lambda path, engine: SimpleNamespace(line=f"own {engine} {path}", without_flag=["a.b"]),
    )  # fmt: skip
    assert kvsim(["init", *words.split()]) == code
    printed = capsys.readouterr()
    assert (printed.out + printed.err).startswith(expected) if code else printed.out + printed.err == expected


STUDY = {
    "extras__study__sweeps__study__read_sweep_file": lambda path: SimpleNamespace(limits="limits", scenario="s.yaml"),
    "extras__study__sweeps__study__inline_sweep": lambda *asked: SimpleNamespace(limits="limits", scenario={}),
    "extras__study__sweeps__stop__stop_on_signals": lambda: nullcontext("stop"),
    "cli__sweep_progress__shown_sweep": lambda *asked: nullcontext("observer"),
    "base__output__write_new": None, "base__output__refuse_existing": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "holds", "code"), [(0, True, 0), (0, False, 4), (5, True, 5), (130, True, 130)]
)
@pytest.mark.parametrize("drawn", [None, "picture", NothingToDraw("k", "t", "no rate")])
@pytest.mark.parametrize("full", [False, True])
def test_a_capacity_is_asked_and_answered(calls, capsys, ends, holds, code, drawn, full):
    answer = SimpleNamespace(cheapest="c" if holds else None, as_json=lambda asked: {"of": asked})
    further = SimpleNamespace(plan=SimpleNamespace(name="own", digest=lambda: "0123456789"), answer=lambda rows: log.append(rows) or answer)  # fmt: skip
    log = calls(
        **STUDY, extras__study__sizing__candidate__plan_capacity=further, cli__capacity__cell_runner="runner", cli__capacity__usable_cores=7,
        extras__study__sweeps__coordinator__run_sweep=SimpleNamespace(cells="cells", records="records", exit_code=ends), extras__study__sweeps__tables__result_rows="rows",
        report__plotting__require_plotting=None, report__plotting__check_file=None, report__plotting__encoded=b"bytes",
        extras__study__sizing__text__answer_text="the answer", extras__study__sizing__text__draw=drawn,
    )  # fmt: skip
    words = ["t", "-c", "s", "--set", "a=1", "--grid", "b=1,2"]
    file = SimpleNamespace(limits="limits", scenario={})
    inline, asked, workers = ("inline_sweep", Path("s"), Path("t"), ["a=1"], ["b=1,2"], "capacity"), (Question(0.99), {}, (1, 1), None, False), 7  # fmt: skip
    target = Path("capacity/own-012345")
    if full:
        words = ["--candidates", "f", "--slo", "ttft=2s", "--attain", "90%", "--min-rate", "1/s", "--max-rate", "9/s", "--need", "5/s",
                 "--pools", "auto", "-o", "d", "-j", "3", "--on", "ray", "--shard", "2/3", "-q", "--format", "json"]  # fmt: skip
        inline, workers, target = ("read_sweep_file", Path("f")), 3, Path("d")
        file.scenario = "s.yaml"
        asked = (Question(0.9, 1.0, 9.0), {"ttft": "2s"}, (2, 3), 5.0, True)
    words += ["--plot", "p.svg", *["--force"] * full] if drawn is not None else []
    assert kvsim(["capacity", *words]) == code
    plotting = [("require_plotting",), ("check_file", Path("p.svg"), "--plot"), ("refuse_existing", Path("p.svg"), full)]  # fmt: skip
    written = [("draw", answer, "own")] * (drawn is not None)
    if drawn == "picture":
        written += [("encoded", "picture", ".svg"), ("write_new", Path("p.svg"), b"bytes", full)]
    assert log == [
        *(plotting if drawn is not None else []), inline, ("plan_capacity", file, *asked), *([("usable_cores",)] * (not full)),
        ("cell_runner", "ray" if full else "local", workers, "limits"), ("stop_on_signals",), ("shown_sweep", full, None),
        ("run_sweep", further.plan, target, "runner", "stop", "observer", further), ("result_rows", "cells", "records"), "rows",
        *([] if full else [("answer_text", answer, 0.99)]), *written,
    ]  # fmt: skip
    printed = capsys.readouterr()
    if full:
        assert json.loads(printed.out) == {"of": {"slo": {"ttft": "2s"}, **Question(0.9, 1.0, 9.0).parameters()}}  # fmt: skip
    else:
        assert printed.out == "the answer\n"
    said = ["wrote p.svg"] * (drawn == "picture") + ["nothing to draw: no rate"] * (drawn not in (None, "picture"))  # fmt: skip
    stopped = ["stopped; run the same command again to resume"] * (ends == 130)
    assert printed.err.splitlines() == [*said, f"candidates in {target}", *stopped]
    if full:
        for more in (["t"], ["-c", "s"], ["--set", "a=1"], ["--grid", "a=1,2"]):
            assert kvsim(["capacity", "--candidates", "f", *more]) == 2


@pytest.mark.parametrize(("ends", "ranks"), [(0, True), (0, False), (5, True), (130, True)])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_a_sweep_is_run_and_ranked(calls, capsys, ends, ranks, full, timed, monkeypatch):
    cells = [SimpleNamespace(index=at, settings={"b": at}) for at in (1, 2)]
    plan = SimpleNamespace(name="own", digest=lambda: "0123456789", own_cells=lambda: cells)
    row = SimpleNamespace(row={"cell": 2, "step_times.source": "x" if timed else None})
    monkeypatch.setattr("kvcache_sim.cli.sweep.replace", lambda file, repeats: (file, repeats))
    log = calls(
        **STUDY, extras__study__sweeps__simulation__plan_sweep=plan, cli__sweep__cell_runner="runner", cli__sweep__usable_cores=7, cli__sweep___estimate=None,
        extras__study__sweeps__coordinator__run_sweep=SimpleNamespace(cached=1, failed=2, missing=1234, records="abc", exit_code=ends), extras__study__sweeps__tables__result_rows="rows",
        report__ranking__rank_cells=SimpleNamespace(order=[row] if ranks else []), report__sweep_report__rows_text="text",
        report__sweep_report__write_sweep_report=None, extras__study__sweeps__single_run__single_run=["kvsim", "simulate"],
        metrics__objectives__parse_objectives=("first", "second"),
    )  # fmt: skip
    words, goals = ["t", "--scenario", "s", "--set", "a=1", "--grid", "b=1,2"], ()
    file, asked, source = SimpleNamespace(limits="limits", scenario={}), ("inline_sweep", Path("s"), Path("t"), ["a=1"], ["b=1,2"]), Path("s")  # fmt: skip
    if full:
        words = ["-c", "d/f", "--pareto", "goals", "-o", "out", "-j", "3", "--on", "ray", "--shard", "2/3", "--repeats", "4", "--report", "r.html", "-q"]  # fmt: skip
        file, asked, source, goals = SimpleNamespace(limits="limits", scenario="s.yaml"), ("read_sweep_file", Path("d/f")), Path("d/s.yaml"), ("first", "second")  # fmt: skip
    assert kvsim(["sweep", *words]) == ends
    target = Path("out") if full else Path("sweeps/own-012345")
    planned = ("plan_sweep", (file, 4), (2, 3)) if full else ("plan_sweep", file, (1, 1))
    begun = [*([("parse_objectives", "goals")] * full), asked, planned, *([("usable_cores",)] * (not full))]
    assert [entry for entry in log if entry[0] != "rows_text"] == [
        *begun, ("cell_runner", "ray" if full else "local", 3 if full else 7, "limits"), ("stop_on_signals",), ("shown_sweep", full, "first" if full else None),
        ("run_sweep", plan, target, "runner", "stop", "observer"), ("result_rows", cells, "abc"), ("rank_cells", "rows", goals),
        *([("single_run", None if full else Path("t"), source, [] if full else ["a=1"], {"b": 2})] * ranks),
        *([("write_sweep_report", Path("r.html"), "own", "rows", goals)] * full),
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "text",
        *([f"next: kvsim simulate{' --sensitivity' * timed}"] * ranks),
    ]
    assert printed.err.splitlines()[0] == f"3 cells ended (1 before), 2 failed, 1,234 not run; tables in {target}"  # fmt: skip
    assert ("stopped" in printed.err) is (ends == 130)
    del log[:]
    assert kvsim(["sweep", *words, "--dry-run"]) == 0
    assert log[len(begun) :] == [("_estimate", plan, target, 3 if full else 7)]
    if full:
        for more in (["t"], ["--scenario", "s"], ["--set", "a=1"], ["--grid", "a=1,2"]):
            assert kvsim(["sweep", "-c", "f", *more]) == 2
    assert kvsim(["sweep", "t"]) == kvsim(["sweep", "--grid", "a=1,2", "--backend", "ray"]) == 2


def test_a_sweep_file_with_its_scenario_is_reported_next():
    inside, outside = SimpleNamespace(scenario={}), SimpleNamespace(scenario="s.yaml")
    report = "next: kvsim sweep -c f --report sweep.html"
    assert [sweep._next(inside, Path("f"), ["w"]), sweep._next(outside, Path("f"), ["w"]), sweep._next(inside, None, ["w"])] == [report, "next: w", "next: w"]  # fmt: skip


@pytest.mark.parametrize(("missing", "failed"), [(0, 0), (1, 0), (0, 1)])
def test_shards_are_put_together(calls, capsys, missing, failed):
    records = {str(at): SimpleNamespace(status="failed" if at < failed else "ok") for at in range(1200)}
    plan = SimpleNamespace(unique_cells=lambda: range(1200 + missing))
    log = calls(extras__study__sweeps__coordinator__merge_shards=(plan, records, ["bad"]))
    assert kvsim(["sweep", "merge", "a", "b", "-o", "w"]) == (5 if missing or failed else 0)
    assert log == [("merge_shards", [Path("a"), Path("b")], Path("w"))]
    said = f"warning: damaged, left out: bad\n1,200 cells, {failed} failed, {missing} missing; tables in w\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("measured", [False, True])
def test_a_sweep_is_estimated(calls, capsys, measured):
    store = SimpleNamespace(peek=lambda ids: (list(ids), "damaged"))
    estimated = SimpleNamespace(rows=5000, distinct=3000, finished=1000, is_measured=measured, cpu_s=60.0, wall_s=lambda jobs: 90.0 / jobs)  # fmt: skip
    log = calls(
        extras__study__sweeps__plan__estimate=estimated, extras__study__sweeps__store__CellStore=store
    )
    plan = SimpleNamespace(unique_cells=lambda: [SimpleNamespace(cell_id="x")])
    sweep._estimate(plan, Path("d"), 3)
    assert log == [("CellStore", Path("d")), ("estimate", plan, ["x"])]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["rows        5,000", "cells       3,000 distinct, 1,000 finished, 2,000 to run"]
    basis = "from finished cells" if measured else "from a default rate: no cell has ended yet"
    assert lines[2:] == [f"cpu time    about 60 s ({basis})", "wall time   about 30 s on 3 workers", "directory   d"]  # fmt: skip


@pytest.mark.parametrize(("stopped", "meets", "code"), [(0, True, 0), (0, False, 4), (143, True, 143)])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("intervals", [None, "", " (± 1)"])
def test_the_best_settings_are_searched_for(calls, capsys, stopped, meets, code, inside, intervals):
    trials = [SimpleNamespace(is_feasible=meets, value=1.0), SimpleNamespace(is_feasible=meets, value=None), SimpleNamespace(is_feasible=False, value=2.0)]  # fmt: skip
    space = SimpleNamespace(draws={"a": 1}, draw_count=50, factors=lambda: ["random"])
    file = SimpleNamespace(space=space, seed=9, limits="limits", name="own", scenario={} if inside else "s.yaml")  # fmt: skip
    cells = [SimpleNamespace(index=at, settings={"b": at}) for at in (1, 2)]
    row = SimpleNamespace(row={"cell": 2, "step_times.source": "x"})
    ranking = SimpleNamespace(order=[row])
    log = calls(
        metrics__names__resolve_metric=lambda name, where: f"{name} of {where}", metrics__thresholds__parse_threshold=lambda text, where: SimpleNamespace(text=text, needs_baseline="base" in text),
        report__ranking__rank_all=ranking, report__ranking_text__verdict=["best"], extras__study__sweeps__optimize__tried=(cells, "rows"), extras__study__sweeps__optimize__optimize=trials,
        extras__study__sweeps__simulation__prepare=("study", "resolve"), extras__study__sweeps__single_run__single_run=["kvsim", "simulate", "--set", "b=2"], cli__optimize__usable_cores=7,
        extras__study__sweeps__stop__stop_on_signals=nullcontext(SimpleNamespace(exit_code=stopped)), extras__study__sweeps__study__read_sweep_file=file, cli__optimize___intervals=intervals,
    )  # fmt: skip
    words = ["-c", "d/f", "--minimize", "ttft"]
    if inside:
        words = ["-c", "d/f", "--maximize", "hits", "--subject-to", "x < 1", "--trials", "3", "-o", "out", "-j", "2"]  # fmt: skip
    assert kvsim(["optimize", *words]) == code
    target = Path("out") if inside else Path("searches/own")
    objective = Objective("hits of --maximize", False) if inside else Objective("ttft of --minimize", True)
    search = Search({"a": 1}, 3 if inside else 50, 9, 2 if inside else 7, "limits")
    goal = Goal(objective, (SimpleNamespace(text="x < 1", needs_baseline=False),) if inside else ())
    (found,) = [entry for entry in log if entry[0] == "optimize"]
    assert found[1:6] == ("study", "resolve", search, goal, target)
    after = log[log.index(found) + 1 :]
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0] == f"3 trials, {int(meets)} meet every condition; {target}"
    assert ("stopped" in printed.err, "no settings tried" in printed.err) == (bool(stopped), not meets)
    if code:
        assert (after, printed.out) == ([], "")
    else:
        assert after == [
            ("tried", "study", "resolve", trials[:1], target), ("rank_all", "rows", objective), ("_intervals", "study", cells[1], objective.metric),
            ("verdict", ranking, "trial", intervals), ("single_run", None, None if inside else Path("d/s.yaml"), [], {"b": 2}),
        ]  # fmt: skip
        last = "settings: --set b=2" if inside else "next: kvsim simulate --set b=2" + " --sensitivity" * (intervals is None)  # fmt: skip
        assert printed.out.splitlines() == ["best", last]
    for wrong in (["--maximize", "x", "--minimize", "y"], [], ["--minimize", "x", "--subject-to", "base"]):
        assert kvsim(["optimize", "-c", "f", *wrong]) == 2
    for draws, count in (({}, 1), ({"a": 1}, 2)):
        space.draws, space.factors = draws, lambda count=count: ["f"] * count
        assert kvsim(["optimize", "-c", "f", "--minimize", "x"]) == 2


@pytest.mark.parametrize("text", ["± 1", ""])
@pytest.mark.parametrize(("metric", "instant", "took_s", "is_known"), [("ttft.p99", False, 20, True), ("ttft.p99", False, 20.5, False), ("ttft.p99", True, 1, False), ("own", False, 1, False)])  # fmt: skip
def test_intervals_of_a_cell_are_those_of_a_short_run(calls, monkeypatch, capsys, metric, instant, took_s, is_known, text):  # fmt: skip
    scenario, clock = SimpleNamespace(model=SimpleNamespace(replica=SimpleNamespace(instant=instant))), iter([3, 3 + took_s])  # fmt: skip
    monkeypatch.setattr(optimize, "time", SimpleNamespace(process_time=lambda: next(clock)))
    log = calls(
        extras__study__sweeps__simulation__requests_of_cell=(scenario, "trace"), scenario__execute__execute="done",
        report__intervals__certainty__with_certainty=(SimpleNamespace(summary="s"), 0, "missing" if text else ""), metrics__certainty__intervals_text=text,
    )  # fmt: skip
    monkeypatch.setattr("kvcache_sim.metrics.certainty.CERTAIN", {"a": SimpleNamespace(metric="x"), "b": SimpleNamespace(metric="ttft.p99")})  # fmt: skip
    found = optimize._intervals("study", "cell", metric)
    ran = [("execute", scenario, "trace", RunOptions(times=True))]
    after = [("with_certainty", "done", "trace"), ("intervals_text", "s", "b")]
    assert log == [("requests_of_cell", "study", "cell"), *ran * (not instant), *after * is_known][: 0 if metric == "own" else 9]  # fmt: skip
    assert found == ((f" ({text})" if text else "") if is_known else None)
    assert capsys.readouterr().err == ("warning: missing\n" if text and is_known else "")
