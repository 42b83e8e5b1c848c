"""Plug-ins run only where something is simulated or checked: a finished run is data, verb by verb.

Each plug-in leaves a mark when it is imported.
"""

import contextlib
import os
from pathlib import Path

import kvcache_sim as kv
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import VERBS
from kvcache_sim.cli.main import run as command
from kvcache_sim.policies.plugins import permission
from kvcache_sim.policies.plugins.load import load_plugin
from kvcache_sim.policies.plugins.permission import names_only, refused

CODE = """
open({mark!r}, "a").close()

class Fetch:
    def reuse(self, plan):
        return plan.end

class Router:
    def __init__(self, machines):
        pass
    def choose(self, sequence):
        return 0

class Order:
    def key(self, waiting):
        return (waiting.arrival_ns,)

def oldest(block, now):
    return block.id
"""
SCENARIO = """
workload: {kind: agentic, requests: 30}
cluster: {machines: 2}
tiers: {gpu: {capacity: 300 blocks}, cpu: {capacity: 600 blocks}}
"""
KEYS = {
    "fetch.policy": "Fetch",
    "router.policy": "Router",
    "replica.queue_order": "Order",
    "tiers.gpu.policy": "oldest",
}
READS = {
    "report": "report RUN -o page.html",
    "explain": "explain RUN",
    "plot": "plot RUN hit-curve -o curve.svg",
    "timeline": "timeline RUN -o line.json",
    "compare": "compare RUN RUN",
    "init": "init --flags RUN",
}
AGAIN = ("reproduce RUN", "explain RUN --sensitivity", "explain RUN --regret")


@pytest.fixture(params=KEYS)
def finished(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a plug-in, in the current directory; its mark is removed."""
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "mark"
    Path("own.py").write_text(CODE.format(mark=str(mark)))
    Path("own.yaml").write_text(SCENARIO)
    setting = f"{request.param}=own.py:{KEYS[request.param]}"
    assert command(["simulate", "-c", "own.yaml", "--set", setting, "-q", "-o", "RUN"]) == 0
    assert mark.exists()
    mark.unlink()
    return mark


def test_reading_a_run_imports_nothing(finished: Path, capsys: pytest.CaptureFixture[str]):
    for verb, line in READS.items():
        assert command(line.split()) == 0, (verb, capsys.readouterr().err)
        assert not finished.exists(), verb
    run = kv.load_run("RUN")
    assert run.scenario["tiers.cpu.capacity"] == "600 blocks"
    kv.explain(run)
    kv.compare(run, run)
    assert not finished.exists()
    assert "plug-in:" not in capsys.readouterr().err


def test_running_again_needs_the_permission(finished: Path, capsys: pytest.CaptureFixture[str]):
    for line in AGAIN:
        assert command(line.split()) == 2
        error = capsys.readouterr().err
        assert "scenario.yaml:" in error
        assert "needs a plug-in, which is code; got " in error
        assert not finished.exists(), line
        assert command([*line.split(), "--plugins"]) == 0
        announced = f"plug-in: {finished.parent / 'own.py'}"
        assert capsys.readouterr().err.count(announced) == 1
        assert finished.exists(), line
        finished.unlink()
        assert command([*line.split(), "--plugins", "--no-plugins"]) == 2
        assert not finished.exists(), line


@pytest.mark.parametrize(
    "line",
    [
        "simulate -c own.yaml --set fetch.policy=own.py:Fetch -q",
        "compare own.yaml other.yaml",
        "cachesim trace.jsonl --policy own.py:oldest --capacity 100",
        "policies check own.py:oldest",
        "curve trace.jsonl --policy own.py:oldest",
        "capacity -c other.yaml -q --slo ttft=2s",
        "sweep --scenario own.yaml -q --grid router.policy=round-robin,own.py:Router",
    ],
)
def test_no_plugins_refuses_all(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    Path("own.yaml").write_text(SCENARIO)
    Path("other.yaml").write_text(SCENARIO + "fetch: {policy: 'own.py:Fetch'}\n")
    Path("trace.jsonl").write_text(
        '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}\n'
    )
    assert command([*line.split(), "--no-plugins"]) == 2
    assert "plug-ins are refused (--no-plugins)" in capsys.readouterr().err
    assert not Path("mark").exists()
    assert command(line.split()) in (0, 1), capsys.readouterr().err
    assert Path("mark").exists(), "the same command runs it where it may"


def test_a_verb_that_reads_cannot_load_one(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(CODE.format(mark=str(tmp_path / "mark")))
    for refusal in (names_only, refused):
        with refusal(), pytest.raises(UsageError, match="plug-in"):
            load_plugin(f"{file}:Fetch")
    assert not (tmp_path / "mark").exists()
    assert READS.keys() <= VERBS.keys()


@pytest.mark.parametrize(("value", "refuses"), [("", False), ("0", False), ("1", True), ("yes", True)])
def test_the_environment_refuses_by_any_word_but_0(
    monkeypatch: pytest.MonkeyPatch, value: str, refuses: bool
):
    monkeypatch.setenv(permission.NO_PLUGINS, value)
    with refused():
        pass
    assert os.environ[permission.NO_PLUGINS] == value, "an inner refusal ends, an outer one stays"
    with pytest.raises(UsageError) if refuses else contextlib.nullcontext():
        permission.ask_to_load("own.py:Fetch")


def test_names_stay_text_behind_an_inner_reader():
    with names_only():
        with names_only():
            pass
        assert not permission.may_load()
        with pytest.raises(UsageError, match="where a run is read"):
            permission.ask_to_load("own.py:Fetch")
    assert permission.may_load()


def test_show_reads_the_file_of_a_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    assert command(["policies", "show", "own.py:oldest"]) == 0
    assert "oldest: a plug-in from own.py\nsha256 " in capsys.readouterr().out
    assert not Path("mark").exists()
