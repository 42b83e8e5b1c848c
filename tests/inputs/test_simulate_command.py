"""``kvsim simulate`` end to end: its run directory, its printed forms, its refusals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.metrics.columns import EVENT_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.simulation import RunOptions

ROOT = Path(__file__).resolve().parents[2]
KVSIM = [sys.executable, "-m", "kvcache_sim"]

SMALL = """
name: small
seed: 5
workload:
  kind: conversational
  requests: 60
  block_size: 16
  first_input_tokens: 200
  new_input_tokens: 50
  output_tokens: 20
  think_time: 3s
cache: {block_size: 16}
tiers: {gpu: {capacity: 100 blocks}, cpu: {capacity: 300 blocks}}
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def run(*argv: str) -> int:
    return main.run(["simulate", *argv])


def test_the_run_directory_holds_what_is_promised(small, capsys):
    assert run("-c", "small.yaml") == 0
    out, err = capsys.readouterr()
    (made,) = (small / "runs").iterdir()
    assert made.name.startswith("1-small-")
    assert err == ""
    assert out.splitlines()[-1] == f"next: kvsim report runs/{made.name}"
    assert len(out.splitlines()) <= 27
    stored = load_run(made)
    assert stored.manifest["config_hash"][:6] == made.name[-6:]
    assert stored.manifest["argv"] == ["kvsim", "simulate", "-c", "small.yaml"]
    assert stored.manifest["digest"] == stored.summary["digest"]
    assert list(stored.requests()) == list(REQUEST_COLUMNS)
    assert list(stored.series()) == list(SERIES_COLUMNS)
    assert list(stored.events()) == list(EVENT_COLUMNS)
    assert len(stored.requests()["request"]) == 60
    assert stored.summary["requests"]["finished"] == 60
    assert stored.summary["cache"]["evictions"]["gpu"] > 0
    assert stored.summary["cache"]["hit_tokens"]["cpu"] > 0


def test_a_second_run_gets_the_next_number_and_the_same_digests(small):
    assert run("-c", "small.yaml", "-q") == run("-c", "small.yaml", "-q") == 0
    first, second = sorted((small / "runs").iterdir())
    assert second.name == "2" + first.name[1:]
    assert load_run(first).summary["digest"] == load_run(second).summary["digest"]
    for name in ("scenario.yaml", "requests.parquet", "series.parquet", "events.parquet"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_resolved_scenario_runs_again_to_the_same_digests(small):
    assert run("-c", "small.yaml", "-q", "-o", "a", "--set", "write.policy=through", "--seed", "9") == 0
    assert run("-c", "a/scenario.yaml", "-q", "-o", "b") == 0
    first, second = load_run(Path("a")), load_run(Path("b"))
    assert second.summary["digest"] == first.summary["digest"]
    assert second.scenario == first.scenario
    assert second.manifest["config_hash"] == first.manifest["config_hash"]
    assert run("-c", "small.yaml", "-q", "-o", "c", "--set", "write.policy=through") == 0
    assert load_run(Path("c")).summary["digest"] != first.summary["digest"]


def test_json_on_stdout_is_pure_and_is_the_summary(small, capsys):
    assert (
        run("-c", "small.yaml", "--format", "json", "-o", "out", "--set", "tiers.gpu.capacity=20 blocks") == 0
    )
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary == load_run(Path("out")).summary
    assert summary["requests"]["rejected"] > 0
    assert "warning: " in err  # requests longer than the gpu
    assert "they are rejected there" in " ".join(err.split())


@pytest.mark.parametrize("name", ["native", "spec", "spec-plain"])
def test_the_summary_names_the_engine_that_served(small, capsys, name):
    assert run("-c", "small.yaml", "--format", "json", "-o", "out", "--engine", name) == 0
    engine = json.loads(capsys.readouterr().out)["engine"]
    assert engine["name"] == name
    assert engine["steps"] > 0


def test_a_trace_file_and_its_changes(small, capsys):
    rows = [
        {"timestamp": 1000 * k, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 100 + k]}
        for k in range(4)
    ]
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = ["--set", "trace.block_size=16", "--set", "cache.block_size=16"]
    assert run("t.jsonl", *sizes, "--format", "json", "-o", "a") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["cache"]["block_refs"] == 4 * 2
    assert summary["cache"]["hit_blocks"] == 3 * 2
    assert summary["tokens"]["output"] == 12
    assert run("t.jsonl", *sizes, "--format", "json", "-o", "b", "--set", "workload.output_tokens=1") == 0
    assert json.loads(capsys.readouterr().out)["tokens"]["output"] == 4
    assert load_run(Path("a")).manifest["trace"]["sha256"] == load_run(Path("b")).manifest["trace"]["sha256"]
    assert run("-c", "a/scenario.yaml", "-q", "-o", "c") == 0
    assert load_run(Path("c")).summary["digest"] == load_run(Path("a")).summary["digest"]


def test_a_breached_threshold_is_exit_4_and_the_run_is_kept(small, capsys):
    assert run("-c", "small.yaml", "-q", "-o", "a", "--fail-if", "hit_rate > 0%") == 4
    assert "threshold breached: hit_rate > 0%" in capsys.readouterr().err
    load_run(Path("a"))
    assert run("-c", "small.yaml", "-q", "-o", "b", "--fail-if", "ttft.p99 > 1h") == 0


def test_a_signal_leaves_nothing_behind(small):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        process = subprocess.Popen(
            [*KVSIM, "simulate", "-c", "small.yaml", "-o", "out", "--set", "workload.requests=200000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 120
        while not (small / ".out.part").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, err
        assert (out, err.count("\n")) == ("", 1)
        assert not (small / "out").exists()
        assert not (small / ".out.part").exists()


def test_the_digest_does_not_depend_on_the_hash_seed_or_the_directory(small):
    digests = []
    for seed in ("0", "1"):
        done = subprocess.run(
            [*KVSIM, "simulate", "-c", str(small / "small.yaml"), "--format", "json", "-o", f"out{seed}"],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(json.loads(done.stdout)["digest"])
    assert digests[0] == digests[1]


def test_the_quickstart_shows_every_tier(tmp_path, capsys):
    assert run("-c", str(ROOT / "scenarios" / "quickstart.yaml"), "-o", str(tmp_path / "out"), "-q") == 0
    summary = load_run(tmp_path / "out").summary
    assert all(summary["cache"]["hit_tokens"][tier] > 0 for tier in ("gpu", "cpu", "disk"))
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("engine", "rust", "native, spec, spec-plain"),
        ("check", "fulll", "cheap or full"),
        ("record_window_ns", (5, 5), "start < end"),
    ],
)
def test_run_options_refuse_what_they_do_not_know(field, value, expected):
    with pytest.raises(UsageError, match=f"{field}: .*expected {expected}"):
        RunOptions(**{field: value})


@pytest.mark.parametrize(("name", "value"), [("backend", "python"), ("step_every_iteration", True)])
def test_run_options_name_the_successor_of_those_that_are_gone(name, value):
    with pytest.raises(UsageError, match=f"^{name}: no such option; got {value!r}; .*engine spec"):
        RunOptions(**{name: value})


def test_a_run_imports_no_more_than_it_uses(small):
    """Neither what reads tables nor what draws, nor a YAML parser where no YAML is given."""
    trace = small / "one.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}\n')
    idle = ["pyarrow", "pandas", "ruamel.yaml", "rich.console", "importlib.metadata", "altair", "ray"]
    code = (
        "import sys, runpy\n"
        "sys.argv = ['kvsim', 'simulate', 'one.jsonl', '--set', 'tiers.gpu.capacity=16 blocks', '-o', 'out']\n"
        "try:\n    runpy.run_module('kvcache_sim', run_name='__main__')\n"
        f"finally:\n    print([m for m in {idle} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=small, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
