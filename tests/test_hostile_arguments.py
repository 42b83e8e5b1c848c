"""Names, closed standard files and failures that no message of a verb covers: one line and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import kvcache_sim as kv
import pytest
from kvcache_sim import _core
from kvcache_sim.cli import main
from kvcache_sim.errors import EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, InvariantError
from kvcache_sim.sweeps import worker
from kvcache_sim.sweeps.store import CellStore

ROWS = '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}\n'
BAD_NAME = b"bad\xff.jsonl"


def kvsim(*arguments: str | bytes, **how: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "kvcache_sim", *arguments]
    return subprocess.run(command, capture_output=not how, check=False, **how)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.jsonl").write_text(ROWS)
    Path(os.fsdecode(BAD_NAME)).write_text(ROWS)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        (b"simulate", BAD_NAME, b"-q"),
        (b"simulate", b"t.jsonl", b"-q", b"-o", b"out\xff"),
        (b"trace", b"stats", BAD_NAME),
        (b"curve", b"none\xff.jsonl"),
        (b"report", b"run\xff"),
        (b"no\xffverb",),
    ],
)
def test_names_that_are_not_utf8_are_refused_in_one_line(folder: Path, line: tuple[bytes, ...]):
    done = kvsim(*line)
    assert done.returncode == EXIT_USAGE
    assert done.stderr.endswith(b": not UTF-8; rename the file\n")
    assert done.stderr.count(b"\n") == 1


def test_a_folder_that_is_not_utf8_is_refused_in_one_line(folder: Path):
    inside = folder / os.fsdecode(b"in\xff")
    inside.mkdir()
    (inside / "t.jsonl").write_text(ROWS)
    done = kvsim("simulate", "t.jsonl", "-q", cwd=inside, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert done.returncode == EXIT_USAGE
    assert done.stderr.startswith(b"error: a name is not UTF-8; got ")
    assert not list(inside.rglob("run.json"))


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_a_run_needs_no_standard_error_or_input(folder: Path, closed: str):
    line = f"{sys.executable} -m kvcache_sim simulate t.jsonl -o out {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert (folder / "out" / "COMPLETE").exists()
    assert b"hit rate" in done.stdout


def test_a_closed_standard_input_has_no_scenario(folder: Path):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kvcache_sim simulate -c - <&-"], capture_output=True, check=False
    )
    assert done.returncode == EXIT_USAGE
    assert done.stderr.startswith(b"-: no requests; ")


def test_a_panic_of_the_core_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """A panic is no ``Exception`` and the core would print it itself."""
    monkeypatch.setattr(main, "dispatch", lambda argv: _core.panic_for_test())
    assert main.run(["simulate"]) == EXIT_INTERNAL
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("internal error: InvariantError: the core: panicked at rust/py/src/fault.rs:")
    assert "a panic of a test; traceback saved in " in line


def test_a_panic_of_the_core_fails_one_cell_and_is_an_exception_of_the_api(monkeypatch: pytest.MonkeyPatch):
    cell = worker.run_cell(lambda study, cell: _core.panic_for_test(), {}, {})
    assert cell["status"] == "failed"
    assert str(cell["error"]).startswith("the core: panicked at ")
    monkeypatch.setattr("kvcache_sim.api.traces._lines", lambda columns: _core.panic_for_test())
    with pytest.raises(InvariantError, match="a panic of a test"):
        kv.make_trace({"input_length": [5], "output_length": [1], "timestamp": [0]})


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_a_cell_that_is_no_file_is_damaged(tmp_path: Path, make):
    store = CellStore(tmp_path)
    store.create()
    make(store.cells / "a.json")
    assert store.peek(["a"]) == ({}, [store.cells / "a.json"])
    assert store.load(["a"])[1] == [str(tmp_path / "quarantine" / "a.json.0")]


@pytest.mark.parametrize("name", ["../../../xx", "/tmp/xx", "a/b", "", "x" * 65, "\ud800", 3.5])
def test_a_sweep_stays_in_its_folder(folder: Path, capsys, name: object):
    scenario = {"trace": {"path": "t.jsonl"}}
    grid = {"write.policy": ["back", "through"]}
    Path("s.yaml").write_text(json.dumps({"name": name, "scenario": scenario, "grid": grid}))
    code = main.run(["sweep", "-c", "s.yaml", "-q"])
    if name == 3.5:  # a number is a name of digits
        assert code == EXIT_OK
        return
    assert code == EXIT_USAGE
    assert "s.yaml" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["bad\udcff.jsonl", "s.yaml", "t.jsonl"]
