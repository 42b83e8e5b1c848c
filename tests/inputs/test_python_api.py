"""The API of ``import kvcache_sim``: the command line's own figures, one line for every refusal, cheap to
import."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kvcache_sim as kv
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kvcache_sim.base.units import format_percent
from kvcache_sim.cli import main
from kvcache_sim.workload.toolbox.write import mooncake_lines

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "how-to" / "python.md").read_text()
ROWS = {
    "arrival_s": [0.0, 0.25, 0.5, 1.75],
    "input_tokens": [1024, 1536, 1600, 700],
    "output_tokens": [9, 8, 7, 6],
    "block_ids": [[10, 2], [10, 2, 3], [10, 2, 3, 4], [5, 6]],
}


@pytest.fixture
def trace():
    return kv.generate("conversational", seed=2, requests=60)


def json_of(capsys, argv) -> dict:
    capsys.readouterr()
    assert main.run(argv) == 0
    return json.loads(capsys.readouterr().out)


def imported_by(*command: str) -> set[str]:
    code = f"import sys; sys.argv = {list(command)!r}; exec({command[0]!r}); print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_import_and_the_help_are_cheap():
    heavy = {"numpy", "typer", "pydantic", "pyarrow", "ruamel.yaml", "pandas"}
    assert not imported_by("import kvcache_sim; dir(kvcache_sim)") & heavy
    help_ = "from kvcache_sim.cli.main import run; run(['--help'])"
    assert not imported_by(help_) & heavy


def test_every_name_is_there_and_the_stub_has_the_same():
    stub = ast.parse((ROOT / "python/kvcache_sim/__init__.pyi").read_text())
    typed = {a.asname: n.module for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names}
    listed = {name: f"kvcache_sim.{module}" for name, module in vars(kv)["_NAMES"].items()}
    assert typed == listed
    assert set(dir(kv)) == set(kv.__all__) | {"__version__"}
    for name, module in listed.items():
        assert getattr(kv, name) is getattr(importlib.import_module(module), name)
        assert inspect.getdoc(getattr(kv, name)), name
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = kv.simulat


def signature_of(function) -> str:
    """Return a signature as the page shows it: names and defaults, no types."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"RunOptions\(.*?\)(?=, sensitivity)", "RunOptions()", text)


@pytest.mark.parametrize("name", kv.__all__)
def test_the_page_has_every_name_with_its_signature(name):
    found = getattr(kv, name)
    if inspect.isfunction(found):
        assert f"kv.{name}{signature_of(found)} -> {inspect.signature(found).return_annotation}" in PAGE
    else:
        assert f"kv.{name}" in PAGE or f"`{name}`" in PAGE


@pytest.mark.parametrize(
    "holder",
    ["Run", "Plot", "Scenario", "Comparison", "Explanation", "Curve", "Sweep", "Capacity", "Optimum"],
)
def test_the_page_has_what_an_object_offers(holder):
    kind = getattr(kv, holder)
    own = {name for name in vars(kind) if not name.startswith("_")}
    hidden = {"checked", "finished", "labelled", "written", "directory", "for_given_requests", "for_trace"}
    missing = [name for name in own - hidden if not re.search(rf"\b{name}\b", PAGE)]
    assert not missing


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, names)


@pytest.mark.parametrize("script", ["two_settings.py", "every_name.py"])
def test_the_scripts_run(script, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, str(DOCS / "how-to" / script)], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if script == "two_settings.py":
        assert "TTFT p99 is" in done.stdout
        assert (tmp_path / "ttft.svg").read_text().startswith("<svg")


def test_the_first_script_has_fifteen_lines_and_the_second_only_names_of_the_page():
    assert len((DOCS / "how-to" / "two_settings.py").read_text().splitlines()) <= 15
    source = (DOCS / "how-to" / "every_name.py").read_text()
    used = set(re.findall(r"\bkv\.(\w+)", source))
    assert used == set(kv.__all__)
    methods = (
        set(re.findall(r"\.(\w+)\(", source))
        - used
        - {"exists", "equals", "write_text", "TemporaryDirectory"}
    )
    assert all(re.search(rf"\b{method}\b", PAGE) for method in methods)


def test_a_run_is_what_the_command_gives(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.jsonl").write_text("".join(mooncake_lines(trace)))
    settings = {"tiers.gpu.capacity": "96 blocks", "tiers.cpu.capacity": "8GiB", "replica.max_num_seqs": 8}
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    reported = json_of(capsys, ["simulate", "t.jsonl", *sets, "-o", "out", "-q", "--format", "json"])
    of_file, of_object = kv.simulate("t.jsonl", **settings), kv.simulate(trace, **settings)
    nested = kv.simulate(
        trace, tiers={"gpu": {"capacity": "96 blocks"}, "cpu": "8GiB"}, replica={"max_num_seqs": np.int64(8)}
    )
    reported.pop("wall")
    for run in (of_file, of_object, nested):
        mine = dict(run.summary)
        assert mine.pop("wall")["cpu_s"] > 0
        assert mine == reported
    for name in ("requests", "series", "events"):
        table = getattr(of_object, name)
        assert isinstance(table, pa.Table)
        assert table.to_pydict() == pq.read_table(f"out/{name}.parquet").to_pydict()
        assert all(field.metadata[b"meaning"] for field in table.schema)
        assert getattr(kv.load_run("out"), name).equals(table)


def test_a_saved_run_is_whole(trace, tmp_path, capsys):
    run = kv.simulate(trace, tiers={"gpu": "64 blocks", "cpu": "4GiB"}, name="mine")
    path = run.save(tmp_path / "mine")
    assert main.run(["reproduce", str(path)]) == 0
    back = kv.load_run(path)
    assert (back.summary, back.digests, back.name) == (run.summary, run.digests, "mine")
    assert str(kv.explain(back)) == str(kv.explain(run))
    with pytest.raises(kv.OutputExistsError):
        run.save(path)
    with pytest.raises(kv.UsageError, match="is a directory already"):
        back.save(tmp_path / "again")
    run.save(path, force=True)


def test_a_run_with_sensitivity_has_the_intervals_of_the_command_line(trace, tmp_path, capsys):
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(mooncake_lines(trace)))
    argv = ["simulate", str(file), "--set", "tiers.gpu.capacity=64 blocks", "-o", str(tmp_path / "out")]
    reported = json_of(capsys, [*argv, "--sensitivity", "--format", "json"])
    assert reported["certainty"]["ttft_p99"]["model_high"] > reported["latency"]["ttft"]["p99"]
    for requests in (file, trace):
        run = kv.simulate(requests, tiers={"gpu": "64 blocks"}, sensitivity=True)
        assert run.summary["certainty"] == reported["certainty"]
        assert run.digests == reported["digest"]
        said = [line.strip(" >") for line in str(run).splitlines()]
        assert re.search(r"TTFT p99 [\d.]+ ms \(requests .* %, model .* %\); TPOT mean", said[0])
        assert said[1].startswith("step times: fitted set h100-llama-3.1-8b-tp1: ×")
        assert said[1] in run._repr_html_()
    plain = kv.simulate(trace, tiers={"gpu": "64 blocks"})
    assert "certainty" not in plain.summary
    assert plain.summary["step_times"] == reported["step_times"]
    with pytest.raises(kv.UsageError, match="sensitivity: has no effect where no time passes"):
        kv.simulate(trace, replica={"instant": True}, sensitivity=True)


def test_words_stand_for_indices_in_a_data_frame(trace):
    run = kv.simulate(trace, tiers={"gpu": "64 blocks"})
    frame = run.to_pandas()
    assert set(frame.status) == {"finished"}
    assert (frame.outcome != "MISS_FULL").sum() == (run.requests["outcome"].to_numpy() != 2).sum()
    assert list(frame.first_token_ns) == run.requests["first_token_ns"].to_pylist()
    assert set(run.to_polars().get_column("status")) == {"finished"}
    with pytest.raises(kv.UsageError, match="expected Literal"):
        run.to_pandas("rows")


def as_frames():
    import pandas as pd
    import polars as pl

    arrays = {name: np.array(column) for name, column in ROWS.items() if name != "block_ids"}
    return {
        "lists": ROWS,
        "arrays": {**arrays, "block_ids": [np.array(ids) for ids in ROWS["block_ids"]]},
        "pandas": pd.DataFrame(ROWS),
        "polars": pl.DataFrame(ROWS),
        "arrow": pa.table(ROWS),
    }


@pytest.mark.parametrize("kind", ["lists", "arrays", "pandas", "polars", "arrow"])
def test_columns_are_the_trace_of_their_rows(kind, tmp_path):
    made = kv.make_trace(as_frames()[kind])
    file = tmp_path / "t.jsonl"
    rows = zip(*ROWS.values(), strict=True)
    file.write_text(
        "".join(
            json.dumps({"timestamp": s * 1000, "input_length": i, "output_length": o, "hash_ids": ids}) + "\n"
            for s, i, o, ids in rows
        )
    )
    read = kv.read_trace(file)
    for name in """
        arrival_ns input_tokens output_tokens id_offsets block_ids session think_ns
    """.split():
        assert getattr(made, name).tolist() == getattr(read, name).tolist(), name
    assert kv.simulate(as_frames()[kind]).digests == kv.simulate(read).digests


def test_sessions_and_gaps_in_columns():
    import pandas as pd

    frame = pd.DataFrame(
        {
            "arrival_ms": [0, None, 40],
            "think_s": [None, 1.5, None],
            "input_tokens": [600, 1200, 600],
            "output_tokens": [10, 10, 10],
            "session": ["a", "a", None],
            "turn": [0, 1, None],
        }
    )
    made = kv.make_trace(frame)
    assert made.think_ns.tolist() == [-1, 1_500_000_000, -1]
    assert (made.session.tolist(), made.turn.tolist()) == ([0, 0, -1], [0, 1, 0])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"input_tokens": [1024, -1, 3, 4]}, "row 1: "),
        ({"arrival_s": [0, 2, 1, 3]}, "row 2: "),
        ({"output_tokens": [1, 2]}, "rows: columns of unequal length"),
        (
            {"output_token": [1, 2, 3, 4]},
            "rows: unknown column 'output_token'; did you mean 'output_tokens'?",
        ),
        ({"timestamp": [1, 2, 3, 4]}, "rows: two columns say the same; got arrival_s and timestamp"),
    ],
)
def test_columns_that_cannot_be_are_one_line(change, line):
    with pytest.raises(kv.KvsimError) as refused:
        kv.make_trace({**ROWS, **change})
    assert str(refused.value).startswith(line)


def test_no_requests_in_columns():
    with pytest.raises(kv.UsageError, match="not requests in columns; got int"):
        kv.simulate(3)


@pytest.mark.parametrize(
    "settings",
    [
        {"tiers.cpus.capacity": "512GiB"},
        {"tiers.cpu.capacity": 512},
        {"write.policy": "through"},
        {"replica.max_num_seqs": 0},
        {"router.policy": "random-prefix"},
        {"model": "llama-3-9b"},
    ],
)
def test_a_refusal_is_the_line_of_the_command(settings, tmp_path, capsys, trace, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.jsonl").write_text("".join(mooncake_lines(trace)))
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    code = main.run(["simulate", "t.jsonl", *sets, "-q"])
    line = capsys.readouterr().err.strip()
    with pytest.raises(kv.KvsimError) as refused:
        kv.simulate("t.jsonl", **settings)
    assert f"--set {refused.value}" == line
    assert refused.value.exit_code == code
    (key,) = settings
    assert refused.value.where == key


def test_scenarios_are_values(tmp_path):
    base = kv.Scenario(tiers={"gpu": "64 blocks"})
    other = base.with_(tiers={"cpu": "1GiB"}, seed=4)
    assert (base["seed"], other["seed"], other["tiers.gpu.capacity"]) == (0, 4, "64 blocks")
    assert "cpu" not in {k for k, v in base["tiers"].items() if v}
    assert other.with_(**{"tiers.cpu": None, "seed": 0}) == base
    assert kv.Scenario.from_yaml(other.to_yaml()) == other
    (tmp_path / "s.yaml").write_text(other.to_yaml())
    assert kv.Scenario.load(tmp_path / "s.yaml", seed=9)["seed"] == 9
    (tmp_path / "s.yaml").write_text("sed: 1\n")
    with pytest.raises(kv.UsageError, match=r"s.yaml:.*unknown key"):
        kv.Scenario.load(tmp_path / "s.yaml")


def test_blocks_of_requests_at_hand_are_the_caches():
    small = kv.generate("conversational", requests=20, block_size=16)
    assert kv.simulate(small).scenario["cache.block_size"] == 16
    with pytest.raises(kv.UsageError, match="does not divide"):
        kv.simulate(small, cache={"block_size": 24})


def test_a_comparison_is_what_the_command_prints(trace, tmp_path, capsys):
    a = kv.simulate(trace, tiers={"gpu": "64 blocks"}, name="a")
    b = kv.simulate(trace, tiers={"gpu": "64 blocks", "cpu": "4GiB"}, name="b")
    paths = [str(run.save(tmp_path / run.name)) for run in (a, b)]
    assert kv.compare(a, b).figures == json_of(capsys, ["compare", *paths, "--format", "json"])
    assert main.run(["compare", *paths]) == 0
    assert str(kv.compare(*paths)).split() == capsys.readouterr().out.split()
    assert kv.compare(a, a).sentences[0].startswith("a (2) and a (1) are identical")
    table = kv.compare(a, b).to_arrow()
    assert table.num_rows == len(kv.compare(a, b).figures[0]["numbers"])
    with pytest.raises(kv.UsageError, match="nothing to compare with"):
        kv.compare(a)


def test_what_a_notebook_shows_is_escaped_and_has_the_figures(trace):
    run = kv.simulate(trace, tiers={"gpu": "64 blocks"}, name="mine")
    shown = run._repr_html_()
    assert "mine" in shown
    assert "llama-3.1-8b on 1 × h100 · 1 machine · tiers gpu 64 blocks" in shown
    assert "TTFT p99" in shown
    assert format_percent(run.summary["cache"]["token_hit_rate"]) in shown
    instant = kv.simulate(trace, tiers={"gpu": "64 blocks"}, replica={"instant": True})._repr_html_()
    assert "<div></div>" not in instant, "without step times there is no line on their source"
    for result in (kv.compare(run, run), kv.explain(run), kv.curve(trace), kv.cachesim(trace, capacity=9)):
        assert "<" in result._repr_html_()
        assert str(result)
