"""Inputs beyond a limit are refused in one line: quantities, the clock, memory, names and paths that
cannot exist."""

import gzip
import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.units import LAST_NS, parse_rate_bytes_per_s, parse_size_bytes, parse_time_ns
from kvcache_sim.cli.main import run
from kvcache_sim.extras.study.sweeps.cell import Study
from kvcache_sim.extras.study.sweeps.tables import export
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.scenario import quantities
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.workload.readers import read_trace
from support.product.reports import Edge
from support.product.sweeps import Plan, Resolved, Shard, Space, lay_out, merge_shards, result_rows
from support.product.traces import build
from support.small_run import seal, small_run
from support.sweep_runs import sweep, tables

ROW = '{"timestamp": %d, "input_length": 1500, "output_length": 3, "hash_ids": [%d, %d, %d]}\n'
SLOW = [
    "channels.pcie={bandwidth: 1 B/s, edges: [cpu->gpu, gpu->cpu]}",
    "channels.pcie={bandwidth: 1 B/s, sharing: fair, edges: [cpu->gpu, gpu->cpu]}",
    "channels.pcie={bandwidth: 1 GB/s, sharing: fair, latency: 1000 d, edges: [cpu->gpu, gpu->cpu]}",
    "channels.pcie={bandwidth: 1GB/s, latency: 3000 d, latency_occupies: true, edges: [cpu->gpu, gpu->cpu]}",
    "channels.pcie={bandwidth: 1 GB/s, piece_overhead: 100 d, edges: [cpu->gpu, gpu->cpu]}",
    "replica.step_overhead=3000 d",
    "replica.client_offset_per_token=1000 d",
]


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        ROW % (k * 1000, s, s + 1, s + 2) for k, s in enumerate([10, 20, 30, 10, 40, 20, 50, 10, 60, 30] * 3)
    ]
    (tmp_path / "t.jsonl").write_text("".join(rows))
    (tmp_path / "two.yaml").write_text("tiers: {gpu: {capacity: 4 blocks}, cpu: {capacity: 100 blocks}}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (parse_time_ns, "3652d", "3653d"),
        (parse_time_ns, "87648h", "1e30 s"),
        (parse_size_bytes, "1024PiB", "9999999999999TiB"),
        (parse_size_bytes, "1e6 TB", "9e15 TB"),
        (parse_rate_bytes_per_s, "1000PB/s", "1001PB/s"),
    ],
)
def test_quantities_end_where_sums_of_them_would_not_fit(parse, good, bad):
    assert 0 < parse(good) < LAST_NS
    with pytest.raises(UsageError, match=r"out of range; got .*; expected at most"):
        parse(bad)


COUNT = 2**31 - 1


CAPACITIES = {
    "16384 blocks": Capacity(blocks=16384),
    f"{COUNT} blocks": Capacity(blocks=COUNT),
    "80GiB": Capacity(size_bytes=80 << 30),
    "unbounded": Capacity(),
    "auto": Capacity(auto=True),
}
EDGES = {
    "auto": Edge(auto=True),
    "10%": Edge(share=0.1),
    "2.5%": Edge(share=0.025),
    "0%": Edge(share=0.0),
    "300s": Edge(time_ns=300 * 10**9),
    "1000 requests": Edge(requests=1000),
}
TIMES = {"0ns": 0, "1ns": 1, "1500us": 1_500_000, "7ms": 7_000_000, "3s": 3 * 10**9}
SIZES = {"1B": 1, "1000B": 1000, "1KiB": 1024, "128KiB": 1 << 17, "3MB": 3 * 10**6, "2TiB": 1 << 41}
CONTEXTS = {"auto": -1, 2: 2, 1 << 31: 1 << 31}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            quantities.CapacityField,
            CAPACITIES,
            ("0 blocks", "0B", f"{COUNT + 1} blocks", "-1 blocks", 5, None, True),
        ),
        (quantities.EdgeField, EDGES, ("100%", "101%", "requests", "5", 5)),
        (quantities.ContextField, CONTEXTS, (1, (1 << 31) + 1, 0, -2, True, "2", 2.0)),
        (quantities.DurationNs, TIMES, ("-1s", 5, "5")),
        (quantities.PositiveNs, {"1ns": 1}, ("0ns",)),
        (quantities.IntervalNs, {"1ms": 10**6}, ("999us", "999999ns")),
        (quantities.PositiveBytes, SIZES, ("0B",)),
        (quantities.RateBytesPerS, {"1B/s": 1, "25GB/s": 25 * 10**9, "1500MB/s": 15 * 10**8}, ("25GB", 5)),
        (quantities.RequestRuleField, {}, ("turn >", 5)),
    ],
)
def test_quantities_as_they_are_written_and_shown(kind, good, bad):
    assert {text: kind.parse(text) for text in good} == good
    assert [kind.parse(kind.render(value)) for value in good.values()] == list(good.values())
    written = [text for text in good if text not in ("1000B", -1)]
    assert [kind.render(good[text]) for text in written] == written
    for value in bad:
        with pytest.raises(UsageError):
            kind.parse(value)
    assert (kind.parse("1_000 blocks").blocks if kind is quantities.CapacityField else 1000) == 1000


@pytest.mark.parametrize("setting", SLOW)
@pytest.mark.parametrize("engine", ["native", "spec", "spec-plain"])
def test_a_run_whose_clock_would_run_out_says_so(index, capsys, setting, engine):
    argv = ["simulate", "t.jsonl", "-c", "two.yaml", "-q", "-o", "out", "--engine", engine]
    assert run([*argv, "--set", setting]) == 2
    assert capsys.readouterr().err.startswith(
        "error: simulated time would pass 73 years; expected a run that ends"
    )
    assert not (index / "out").exists()


@pytest.mark.parametrize("process", ["poisson", "constant", "gamma"])
def test_arrivals_beyond_the_clock_are_refused_not_put_at_nought(process):
    more = {"burstiness": 0.5} if process == "gamma" else {}
    arrivals = {"process": process, **more}
    with pytest.raises(UsageError, match=r"workload.arrivals: arrivals beyond 73 years"):
        build("diverse", {"requests": 10, "arrivals": {**arrivals, "rate_per_s": 1e-11}}, 0)
    slow = build("diverse", {"requests": 10, "arrivals": {**arrivals, "rate_per_s": 1e-7}}, 0)
    assert 0 < slow.arrival_ns[0] < slow.arrival_ns[-1] <= LAST_NS


def test_blank_lines_before_a_trace_are_counted_not_the_end_of_it(index):
    for blank in (1 << 16, 1 << 18):
        (index / "late.jsonl").write_text("\n" * blank + (index / "t.jsonl").read_text())
        trace = read_trace("late.jsonl")
        assert len(trace) == 30
        assert f"{blank} blank lines" in trace.warnings[0]
    (index / "late.csv").write_text(
        "\n" * (1 << 16) + "arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n"
    )
    assert len(read_trace("late.csv")) == 1
    (index / "void").write_text("\n" * ((1 << 24) + 9))
    with pytest.raises(TraceError, match="no requests"):
        read_trace("void")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 1000 + "\n", "t:1:1: a JSON array of no known format"),
        (
            '{"timestamp": 0, "input_length": 5, "output_length": 1, "more": ' + "[" * 1000 + "\n",
            r"t:1:\d+: JSON nested deeper than 128",
        ),
        ('[{"conversations": [{"from": "human", "value": ' + "[" * 5000, "t:1: JSON nested too deep"),
    ],
)
def test_deep_nesting_is_refused_wherever_it_stands(index, text, said):
    (index / "t").write_text(text)
    with pytest.raises(TraceError, match=said):
        read_trace("t")


def test_a_small_file_that_grows_without_a_line_end_is_refused(index):
    for start, said in (
        (b'{"timestamp": 0, "input_length": "', "bomb:1: line too long; expected at most 134217728 bytes"),
        (b'[{"conversations": [{"from": "human", "value": "', "bomb:1: an element too long"),
    ):
        (index / "bomb").write_bytes(gzip.compress(start + b"x" * (140 << 20), 1))
        with pytest.raises(TraceError, match=said):
            read_trace("bomb")


def test_a_zstandard_window_larger_than_memory_is_refused(index):
    for window in (31 << 3, 31 << 3 | 7):
        (index / "t.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"\x01\x00\x00")
        with pytest.raises(TraceError, match=r"a window of .* bytes where 134217728 are allowed"):
            read_trace("t.zst")
    (index / "t.zst").write_bytes(b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00")
    with pytest.raises(TraceError, match="a window of"):
        read_trace("t.zst")


def without_a_column(directory):
    path = directory / "requests.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["finish_ns"]), path)


def with_numbers_that_are_none(directory):
    path = directory / "requests.parquet"
    table = pq.read_table(path)
    column = pa.array(np.full(len(table), np.nan))
    pq.write_table(table.set_column(table.column_names.index("finish_ns"), "finish_ns", column), path)


def changed_summary(change):
    def apply(directory):
        summary = json.loads((directory / "summary.json").read_text())
        change(summary)
        (directory / "summary.json").write_text(json.dumps(summary))

    return apply


def written(name: str, text: str):
    return lambda directory: (directory / name).write_text(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (written("run.json", "[]"), "not a run directory of this version"),
        (written("run.json", '{"trace": 5}'), "not a run directory of this version"),
        (written("summary.json", "5"), "not a run directory of this version"),
        (written("summary.json", "[" * 9999), "not a run directory of this version"),
        (without_a_column, "requests.parquet: lacks a column; got no finish_ns"),
        (
            with_numbers_that_are_none,
            "requests.parquet: column finish_ns has another type; got double|got float64",
        ),
        (
            changed_summary(lambda s: s["cache"].update(token_hit_rate=float("nan"))),
            "not a run directory of this",
        ),
        (changed_summary(lambda s: s.pop("cache")), "not a run directory of this version; got no cache"),
        (changed_summary(lambda s: s["latency"]["ttft"].update(p99="x")), "form; got latency.ttft.p99: 'x'"),
        (changed_summary(lambda s: s.update(saturation=[[1]])), r"form; got saturation: \[\[1\]\]"),
        (
            changed_summary(lambda s: s.update(machines={"requests": 1e308})),
            "form; got machines.requests: 1e",
        ),
        (
            changed_summary(lambda s: s["cache"].update(evictions={"gpu": {}})),
            "form; got cache.evictions.gpu",
        ),
        (changed_summary(lambda s: s.update(session_survival=[{"turns": 1}, 5])), "survival.1: 'no row'"),
    ],
)
def test_a_run_that_was_changed_and_sealed_again_names_what_is_wrong(tmp_path, capsys, change, said):
    small_run(tmp_path / "r", 40)
    change(tmp_path / "r")
    seal(tmp_path / "r")
    assert run(["explain", str(tmp_path / "r")]) == 7
    line = capsys.readouterr().err
    assert re.search(said, line), line


@pytest.mark.parametrize("argv", [["policies", "list"], ["--help"], ["models", "list"]])
def test_a_closed_stdout_is_reported(argv):
    command = ["sh", "-c", f'exec "$0" -m kvcache_sim {" ".join(argv)} >&-', sys.executable]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (7, "error: stdout was closed before everything was printed\n")


def test_no_memory_is_one_line(monkeypatch, capsys):
    def none_left(argv):
        raise MemoryError

    monkeypatch.setattr("kvcache_sim.cli.main.dispatch", none_left)
    assert run(["simulate"]) == 7
    assert capsys.readouterr().err == "error: out of memory\n"


def test_six_equal_runs_at_once_take_six_numbers(index):
    command = [sys.executable, "-m", "kvcache_sim", "simulate", "t.jsonl", "-c", "two.yaml", "-q"]
    runs = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    reported = [(one.communicate(timeout=120)[1], one.returncode) for one in runs]
    assert reported == [("", 0)] * 6
    names = sorted(os.listdir(index / "runs"))
    assert [name.split("-")[0] for name in names] == ["1", "2", "3", "4", "5", "6"]
    assert not [path for name in names for path in (index / "runs" / name).iterdir() if path.name == ".lock"]
    assert len({load_run(index / "runs" / name).manifest["digest"]["results"] for name in names}) == 1


def study(rows):
    return lay_out(
        "odd",
        Study("support.sweep_cells:quick", "", ".", {}),
        Space(points=rows),
        1,
        0,
        lambda s: Resolved(dict(s), 1.0),
    )


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(__file__)))


def test_merged_shards_are_the_whole_sweep_whatever_the_order_of_names(tmp_path, importable):
    rows = [{"x": k, "b": "=1+1", "a": {"z": k, "c": 1}} for k in range(4)] + [{"a": 1, "x": 9}]
    plan = study(rows)
    sweep(plan, tmp_path / "whole")
    shards = [tmp_path / "one", tmp_path / "two"]
    for number, directory in enumerate(shards, 1):
        sweep(Plan(plan.name, plan.study, plan.cells, Shard(number, 2)), directory)
    merge_shards(shards, tmp_path / "merged")
    assert tables(tmp_path / "merged") == tables(tmp_path / "whole")
    head = (tmp_path / "merged" / "results.csv").read_text().splitlines()[0]
    assert head.index("set.x") < head.index("set.b") < head.index("set.a")


def test_text_that_a_spreadsheet_would_compute_is_text(tmp_path):
    plan = study([{"b": "=HYPERLINK(1)", "c": "-2+3", "x": -2}])
    export(result_rows(plan.cells, {}), tmp_path)
    assert "'=HYPERLINK(1),'-2+3,-2" in (tmp_path / "results.csv").read_text()
    assert pq.read_table(tmp_path / "results.parquet").column("set.b").to_pylist() == ["=HYPERLINK(1)"]
