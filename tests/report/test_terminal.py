"""Output in a terminal of 80 columns: progress, tables, comparisons with their numbers, next steps."""

import io
import json
import re
import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import kvcache_sim as kv
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli import main, sweep_progress
from kvcache_sim.cli.notices import remark, warn
from kvcache_sim.cli.progress import _clock, _Paced, _short, state_line, time_line
from kvcache_sim.cli.trace.tokens import counting
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.metrics.prefix_cache import LEAST_COMPARED, _sentence, medians_of_equal_length
from kvcache_sim.metrics.run import Progress
from kvcache_sim.report.compare.comparison import compare
from kvcache_sim.report.compare.text import sentences
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.picture import Table
from kvcache_sim.report.plain_table import plain_table
from kvcache_sim.workload.toolbox.write import mooncake_lines
from support.fake_run import request_columns, write_run

SHARES = st.floats(0, 3)


@given(
    st.builds(
        Progress,
        now_ns=st.integers(0, 2**62),
        finished_requests=st.integers(0, 10**9),
        total_requests=st.integers(0, 10**7),
        steps=st.integers(0, 10**12),
        tiers=st.dictionaries(st.sampled_from(["gpu", "cpu", "disk"]), SHARES),
        token_hit_rate=SHARES,
        queue=st.integers(0, 10**9),
        end_ns=st.integers(0, 2**62),
        tier_hit_rates=st.dictionaries(st.sampled_from(["gpu", "cpu", "disk", "remote"]), SHARES),
        channels=st.dictionaries(
            st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=90), SHARES
        ),
    ),
    st.floats(1e-3, 1e7),
)
def test_progress_fits_and_never_passes_its_end(glance, wall_s):
    first, second = time_line(glance, wall_s), state_line(glance)
    assert max(len(first), len(second)) <= 80
    assert "ETA" in first
    assert "queue" in second
    assert "hit" in second
    of_all = [float(share.replace(",", "")) for share in re.findall(r"([\d.]+) %", first + second)]
    assert max(of_all) <= 100


def test_progress_says_time_left_speed_queue_and_channels():
    glance = Progress(
        now_ns=int(4000e9),
        finished_requests=3008,
        total_requests=12031,
        steps=70_000,
        tiers={"gpu": 1.0, "cpu": 0.5},
        token_hit_rate=0.31,
        queue=12,
        end_ns=int(3537e9),
        tier_hit_rates={"gpu": 0.2, "cpu": 0.11},
        channels={"pcie": 0.4},
    )
    assert time_line(glance, 10.0) == (
        "▕██      ▏  25 %  ETA 00:00:30  00:58:57 of 00:58:57  301 req/s  7,000 steps/s"
    )
    assert state_line(glance) == "queue 12 | hit 31.0 % | pcie 40 % | gpu 100 % | cpu 50 %"


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=120)


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(WORDS, min_size=n, max_size=n), min_size=1, max_size=5)
    )
)
def test_tables_wrap_at_their_cells(rows):
    text = plain_table(Table(tuple(rows[0]), tuple(map(tuple, rows[1:]))), 80)
    assert max(map(len, text.splitlines()), default=0) <= 80
    flat = Counter("".join(text.split()))
    assert not Counter("".join("".join(cell.split()) for row in rows for cell in row)) - flat


def test_a_wide_table_repeats_its_first_column():
    table = Table(("cell", *(f"figure-{k:02}" for k in range(12))), ((1, *range(12)), (2, *range(12))))
    parts = plain_table(table, 80).split("\n\n")
    assert len(parts) == 2
    assert all(part.splitlines()[0].startswith("cell  figure-") for part in parts)
    assert plain_table(table, 200).count("cell") == 1


@pytest.mark.parametrize(
    ("hits", "misses", "said"),
    [
        (12_021, 10, "12,021 requests hit, in full or in part, 10 missed; 50 % of prefill was saved"),
        (
            30,
            30,
            "30 requests hit, in full or in part, 30 missed; 50 % of prefill was saved; of 808 to 1,009 prompt tokens, 30 hits waited 15 ms at the median, 30 misses 194 ms",
        ),
        (30, 29, "30 requests hit, in full or in part, 29 missed; 50 % of prefill was saved"),
        (0, 40, "0 requests hit, in full or in part, 40 missed"),
        (40, 0, "40 requests hit, in full or in part, 0 missed; 50 % of prefill was saved"),
    ],
)
def test_hits_and_misses_are_compared_only_where_there_are_enough_of_both(hits, misses, said):
    counts = Counter(hits=hits, admitted=hits + misses, cached=1, prompts=2)
    hit = np.repeat([1, 0], [hits, misses])
    equal = medians_of_equal_length(np.full(hits + misses, 1000), hit, np.where(hit, 15, 194) * 10**6)
    assert _sentence(counts, equal) == said


def test_hits_and_misses_are_compared_at_equal_prompt_length():
    """Misses are shorter here and wait less; of equally long prompts they wait longer."""
    random = np.random.default_rng(0)
    hit = np.repeat([1, 0], [4000, 400])
    prompts = np.where(hit, random.integers(2000, 9000, 4400), random.integers(100, 4000, 4400))
    ttft_ns = np.where(hit, 50 * prompts, 80 * prompts)
    assert np.median(ttft_ns[hit == 0]) < np.median(ttft_ns[hit == 1])
    found = medians_of_equal_length(prompts, hit, ttft_ns)
    inside = (prompts >= found.least) & (prompts <= found.most)
    assert found.most < 1.26 * found.least
    assert (found.hits, found.misses) == (int(inside[hit == 1].sum()), int(inside[hit == 0].sum()))
    assert min(found.hits, found.misses) >= LEAST_COMPARED
    assert found.miss_ms > 1.2 * found.hit_ms
    of_all = [
        medians_of_equal_length(np.full(60, n), np.arange(60) % 2, np.full(60, 5)) for n in range(1, 400)
    ]
    assert all(one.least <= n <= one.most for n, one in enumerate(of_all, 1))
    buckets = list(dict.fromkeys((one.least, one.most) for one in of_all))
    assert all(before[1] + 1 == after[0] for before, after in pairwise(buckets)), (
        "no length between two buckets"
    )
    short = np.where(hit, 5000, 500)
    assert medians_of_equal_length(short, hit, ttft_ns) is None


def test_fewer_than_thirty_requests_are_not_compared_in_words(tmp_path):
    few, many = LEAST_COMPARED - 1, 200
    for count in (few, many):
        one, two = request_columns(count), request_columns(count)
        two["first_token_ns"] = two["first_token_ns"] + 10**6
        two["finish_ns"] = two["finish_ns"] + 10**6
        runs = open_runs([write_run(tmp_path / f"{n}-{count}", c) for n, c in enumerate((one, two))])
        compared = compare([runs[0]], [runs[1]])
        reported = sentences(compared)
        if compared.requests < LEAST_COMPARED:
            assert reported == [
                f"Too few requests to compare 1-{count} and 0-{count}: {compared.requests} requests, at least 30 needed."
            ]
        else:
            assert all(f"n = {compared.requests}" in sentence for sentence in reported)


@pytest.fixture
def trace():
    return kv.generate(
        "conversational", seed=2, requests=80, output_tokens={"kind": "uniform", "min": 1, "max": 3}
    )


def test_tpot_is_one_number(trace, tmp_path, capsys):
    run = kv.simulate(trace, tiers={"gpu": "64 blocks"}, name="a")
    other = kv.simulate(trace, tiers={"gpu": "48 blocks"}, name="b")
    outputs = run.requests["output_tokens"].to_numpy()
    assert (outputs == 1).any()
    expected = run.summary["latency"]["tpot"]["avg"]
    compared = kv.compare(run, other).figures[0]["numbers"]["latency.tpot.avg"]
    assert compared["baseline"] == pytest.approx(expected, rel=1e-12)
    later = outputs > 1
    spans = (run.requests["finish_ns"].to_numpy() - run.requests["first_token_ns"].to_numpy())[later]
    assert expected == pytest.approx(float(np.mean(spans / (outputs[later] - 1))) / 1e6, abs=1e-6)
    assert kv.sweep(trace, grid={"tiers.gpu": ["64 blocks"]}).rows[0]["latency.tpot.avg"] == expected


def test_the_summary_says_what_was_simulated_and_prices(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.jsonl").write_text("".join(mooncake_lines(trace)))
    sets = [
        "tiers.gpu.capacity=64 blocks",
        "tiers.cpu.capacity=4GiB",
        "cluster.machines=2",
        "router.policy=longest-prefix",
        "cost.gpu_hour=2.5",
    ]
    assert main.run(["simulate", "t.jsonl", "-q", "-o", "out", *(w for s in sets for w in ("--set", s))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    reported = next(n for n, line in enumerate(lines) if line.startswith("run "))
    assert [line.split(": ")[0] for line in lines[-2:]] == ["intervals", "next"]
    assert len(lines) - reported <= 26  # with the command that adds the intervals
    first = " ".join(lines[:reported])
    for part in (
        "llama-3.1-8b on 1 × h100",
        "2 machines",
        "gpu 64 blocks",
        "cpu 4GiB",
        "t.jsonl, 80 requests",
        "router longest-prefix",
        "priced",
    ):
        assert part in first
    of = {line.split()[0]: line for line in lines}
    assert "CPU s" in of["took"]
    summary = json.loads(Path("out/summary.json").read_text())
    assert of["cost"].split()[1] == f"{summary['cost']['per_million_tokens']:.3g}"
    assert "CPU" not in of["cost"]


def test_a_sweep_marks_the_best_cell_and_says_what_to_type_next(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chats = kv.generate("conversational", seed=7, requests=150)
    Path("t.jsonl").write_text("".join(mooncake_lines(chats)))
    argv = [
        "sweep",
        "t.jsonl",
        "--grid",
        "tiers.gpu.capacity=48 blocks,4096 blocks",
        "--set",
        "replica.max_num_seqs=8",
        "-q",
        "-o",
        "cells",
        "-j",
        "1",
    ]
    assert main.run(argv) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.split("\n* ")[0].splitlines())) <= 80
    assert "\n1 *" in out
    assert "* cell 1 has the lowest TTFT p99" in out
    again = out.rpartition("next: ")[2].replace("\\\n", "")
    assert max(map(len, out.splitlines())) <= 80
    assert main.run([*shlex.split(again)[1:], "-q", "-o", "best", "--format", "json"]) == 0
    best = json.loads(capsys.readouterr().out)
    rows = kv.sweep(
        "t.jsonl", grid={"tiers.gpu": ["48 blocks", "4096 blocks"]}, replica={"max_num_seqs": 8}
    ).rows
    assert best["digest"]["results"] == rows[1]["digest.results"]


def test_the_next_command_of_a_sweep_takes_back_what_the_scenario_sets(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(
        "workload: {kind: conversational, requests: 60}\n"
        "tiers: {gpu: {capacity: 20 blocks}, cpu: {capacity: 40 blocks}}\n"
        "channels: {pcie: {bandwidth: 50MB/s, edges: [gpu->cpu, cpu->gpu]}}\n"
    )
    argv = ["sweep", "--scenario", "base.yaml", "--grid", "tiers.cpu=null,{capacity: 40 blocks}"]
    assert (
        main.run([*argv, "--set", "write.policy=through", "--repeats", "1", "-q", "-j", "1", "-o", "cells"])
        == 0
    )
    out = capsys.readouterr().out
    assert "* cell 0 has the lowest" in out, "loading over 50 MB/s is slower than computing"
    words = shlex.split(out.rpartition("next: ")[2].replace("\\\n", ""))
    assert words == ["kvsim", "simulate", "-c", "base.yaml", "--set", "tiers.cpu=null", "--sensitivity"]
    assert main.run([*words[1:], "-q", "-o", "again", "--format", "json"]) == 0
    (first, _) = json.loads(Path("cells/plan.json").read_text())["cells"]
    record = json.loads(Path(f"cells/cells/{first[0]}.json").read_text())
    digest = json.loads(capsys.readouterr().out)["digest"]["results"]
    assert digest in json.dumps(record)


def test_progress_is_drawn_once_in_an_interval_and_phases_after_the_first_drawing(monkeypatch):
    now, drawn = [100.0], []
    monkeypatch.setattr("kvcache_sim.cli.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("kvcache_sim.cli.progress.time_line", lambda _, wall_s: f"after {wall_s:g} s")
    monkeypatch.setattr("kvcache_sim.cli.progress.state_line", str)
    paced = _Paced(lambda *lines: drawn.append(lines), 10.0)
    for now[0] in (109.5, 110.0, 119.5, 121.0, 130.5):
        paced.update(now[0])
    assert [first for first, _ in drawn] == ["after 10 s", "after 21 s"]
    paced.phase("writing")
    assert drawn[2:] == [("simulated 100 %", "writing, 30 s so far")]
    short = _Paced(lambda *lines: drawn.append(lines), 10.0)
    for now[0], count in ((140.0, 3), (140.5, 4)):
        short.phase("writing")
        assert len(drawn) == count


@pytest.mark.parametrize(
    ("is_terminal", "environment", "shown"),
    [
        (False, {}, "lines"),
        (True, {"CI": "1"}, "lines"),
        (True, {"NO_COLOR": "1"}, "lines"),
        (True, {}, "bar"),
    ],
)
def test_work_on_a_trace_is_counted_in_a_bar_or_in_lines(monkeypatch, is_terminal, environment, shown):
    """A line every ten seconds; the time left is that of the rest at the speed so far."""
    now, written = [100.0], io.StringIO()
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(written, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setattr("kvcache_sim.cli.trace.tokens.time.monotonic", lambda: now[0])
    with counting(2000, "rows", quiet=True) as silent:
        silent(5)
    assert written.getvalue() == ""
    with counting(2000, "rows", quiet=False) as done:
        for at_s, count in ((105, 300), (110, 200), (119, 500), (120.5, 0), (130, 500)):
            now[0] = at_s
            done(count)
    if shown == "bar":
        assert "rows" in written.getvalue()
        assert "75%" in written.getvalue()
        assert written.getvalue().endswith("\x1b[2K"), "the line is cleared at the end"
        return
    assert written.getvalue().splitlines() == [
        "500 of 2,000 rows, ETA 30 s",
        "1,000 of 2,000 rows, ETA 20 s",
    ]


@pytest.mark.parametrize(
    ("write", "value", "expected"),
    [
        (_short, 9_999, "9,999"),
        (_short, 10_000, "10 k"),
        (_short, 9_999_499, "9,999 k"),
        (_short, 10**7, "10 M"),
        (_short, 10**10, "10 G"),
        (_short, 10**13 - 10**9, "9,999 G"),
        (_short, 10**13, "1e+13"),
        (_short, 0.4, "0"),
        (_clock, -5, "00:00:00"),
        (_clock, 59.6, "00:01:00"),
        (_clock, 3_599, "00:59:59"),
        (_clock, 359_999, "99:59:59"),
        (_clock, 360_000, "4.2 d"),
        (_clock, 999_999_999, "11,574.1 d"),
        (_clock, 10**9, "1.2e+04 d"),
        (_clock, 1e300, "1.2e+10 d"),
    ],
)
def test_numbers_and_times_of_a_live_line(write, value, expected):
    assert write(value) == expected


def test_a_line_of_a_sweep(monkeypatch, capsys):
    """Every ten seconds where it is no terminal; the best so far, the last error, and the time left at this pace."""
    times = iter([0.0, 5.0, 10.0, 15.0, 20.0])
    monkeypatch.setattr(sweep_progress.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(sweep_progress, "_PLAIN_S", 10)
    line = sweep_progress.SweepLine(Objective("cache.token_hit_rate", False), False)
    line.begin(8, 2, ["x.json"])
    assert "damaged file set aside, its cell runs again: x.json" in capsys.readouterr().err
    found = []
    for index, (rate, error) in enumerate([(0.25, ""), (0.5, ""), (None, "broken"), (0.125, "")]):
        summary = {"cache": {"token_hit_rate": rate}}
        line.cell_ended(
            SimpleNamespace(index=index),
            SimpleNamespace(status="failed" if error else "ok", error=error, summary=summary),
        )
        found.append(capsys.readouterr().err)
    assert found == [
        "",
        "4/8 cells, 0 failed, 2 cached, ETA 20 s, best cache.token_hit_rate 0.5\n",
        "",
        "6/8 cells, 1 failed, 2 cached, ETA 10 s, best cache.token_hit_rate 0.5, last error: cell 2: broken\n",
    ]


@pytest.mark.parametrize(("live", "columns", "width"), [(True, 60, 60), (True, 20, 40), (False, 60, 80)])
@pytest.mark.parametrize(("say", "head"), [(warn, "warning: "), (remark, "note: ")])
def test_notices_fit_the_terminal(monkeypatch, capsys, live, columns, width, say, head):
    """Without a terminal they have 80 columns, and 40 at least; later lines are indented."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: live)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: SimpleNamespace(columns=columns))
    say(" ".join(["a-b"] * 60))
    out, err = capsys.readouterr()
    first, *others = err.splitlines()
    assert (out, first[: len(head)]) == ("", head)
    assert all(line.startswith("  a-b") for line in others)
    assert all(width - 4 < len(line) <= width for line in (first, *others[:-1]))
    assert " ".join(err[len(head) :].split()) == " ".join(["a-b"] * 60)
