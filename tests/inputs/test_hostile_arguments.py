"""Names, closed standard files and failures that no message of a verb covers: one line and an exit code."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kvcache_sim import _core
from kvcache_sim.base.errors import (
    EXIT_INTERNAL,
    EXIT_IO,
    EXIT_OK,
    EXIT_OUTPUT_EXISTS,
    EXIT_TRACE,
    EXIT_USAGE,
)
from kvcache_sim.cli import main
from kvcache_sim.extras.study.sweeps import worker
from support.product.sweeps import CellStore

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
    assert done.stderr.startswith(b"-: an empty scenario; expected settings, ")


def test_a_panic_of_the_core_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """A panic is no ``Exception`` and the core would print it itself."""
    monkeypatch.setattr(main, "dispatch", lambda argv: _core.panic_for_test())
    assert main.run(["simulate"]) == EXIT_INTERNAL
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("internal error: InvariantError: the core: panicked at rust/py/src/fault.rs:")
    assert "a panic of a test; traceback saved in " in line


def test_a_panic_of_the_core_fails_one_cell():
    cell = worker.run_cell(lambda study, cell: _core.panic_for_test(), {}, {})
    assert cell["status"] == "failed"
    assert str(cell["error"]).startswith("the core: panicked at ")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_a_cell_that_is_no_file_is_damaged(tmp_path: Path, make):
    store = CellStore(tmp_path)
    store.create()
    for number in range(3):
        make(store.cells / "a.json")
        assert store.peek(["a"]) == ({}, [store.cells / "a.json"])
        assert store.load(["a"])[1] == [str(tmp_path / "quarantine" / f"a.json.{number}")]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_a_run_or_a_sweep_is_not_read_from_pipes_and_devices(folder: Path, capsys, make):
    for command, file in (
        (["init", "--flags", "made"], "made/scenario.yaml"),
        (["sweep", "t.jsonl", "--grid", "seed=1,2", "-o", "made", "-q"], "made/plan.json"),
        (["sweep", "merge", "made", "-o", "out"], "made/plan.json"),
    ):
        Path("made").mkdir()
        make(Path(file))
        assert main.run(command) not in (EXIT_OK, EXIT_INTERNAL)
        assert len(capsys.readouterr().err.splitlines()) == 1
        shutil.rmtree("made")


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


DEEP, LONG = "[" * 5000, "9" * 5000
FILES: dict[str, str | bytes] = {
    "deep.toml": f"a = {DEEP}",
    "long.toml": f"name = 'x'\nlayers = {LONG}\n",
    "cell.csv": f"num_gpus,message_bytes,time_ms\n2,{LONG * 40},1\n",
    "log.csv": f"request id,output,latency,TTFT\n1,{LONG * 40},1,1\n",
    "cut.csv.gz": gzip.compress(b"a,b\n" * 999, mtime=0)[:20] + b"\xff" * 9,
    "deep.jsonl": DEEP + "\n",
    "events.jsonl": '[1, [["BlockStored", [1], null, [1], 16, null, "GPU"], [["x"], 1], {"type": []}], 0]\n',
}
#: Words of a command with its exit code and words of its one line.
LINES = [
    ("models show deep.toml", EXIT_USAGE, "deep.toml: not a model file"),
    ("models show long.toml", EXIT_USAGE, "long.toml: not a model file"),
    ("gpus show long.toml", EXIT_USAGE, "long.toml: not a"),
    ("step-times show deep.toml", EXIT_USAGE, "deep.toml: not a step-time file"),
    ("channels show deep.toml", EXIT_USAGE, "deep.toml: not a"),
    ("simulate t.jsonl --set model=deep.toml", EXIT_USAGE, "deep.toml: not a model file"),
    ("calibrate fit cell.csv", EXIT_TRACE, "cell.csv:2: not a CSV file"),
    ("calibrate fit cut.csv.gz", EXIT_TRACE, "cut.csv.gz: not a CSV file"),
    ("calibrate requests log.csv", EXIT_TRACE, "log.csv"),
    ("trace import deep.jsonl -o new.jsonl", EXIT_TRACE, "deep.jsonl"),
    ("trace convert t.jsonl -o nothing", EXIT_OUTPUT_EXISTS, "nothing: the output exists"),
    ("trace anonymise t.jsonl -o nothing", EXIT_OUTPUT_EXISTS, "nothing: the output exists"),
    ("shadow events.jsonl --times inf", EXIT_USAGE, "--times: not a finite number"),
    ("shadow events.jsonl --pause inf", EXIT_USAGE, "--pause: not a finite number"),
    (f"shadow events.jsonl --cpu {LONG[:30]}", EXIT_USAGE, "a number beyond 64 bits"),
    ("cachesim t.jsonl --capacity 5 --policy vllm --window 9223372036854775807", EXIT_OK, ""),
    ("cachesim t.jsonl --capacity 5 --policy vllm --cpu-chunks 4294967297 --cpu-policy arc", EXIT_OK, ""),
    (
        "record --upstream http://127.0.0.1:1 --host 999.1.1.1 -q -o new.jsonl",
        EXIT_USAGE,
        "cannot listen there",
    ),
    *(
        (f"record --upstream {url} -q -o new.jsonl", EXIT_USAGE, "--upstream: no upstream; got ")
        for url in (
            *(
                "http://a:1/x",
                "http://a:1/?q",
                "http://a:1/#f",
                "http://u:p@a:1",
                "http://a:99999",
                "http://a:0",
            ),
            *(
                "http://a:",
                "http://",
                "http://[::1",
                "http://a..b:1",
                "https://a:1",
                "a:1",
                "http://" + "a" * 64,
            ),
        )
    ),
    *(
        (f"shadow --kv-events {url}", EXIT_USAGE, "--kv-events: no endpoint; got ")
        for url in """
            tcp://a:99999 tcp://a:0 tcp://a tcp://*:1 tcp://a:1/x udp://a:1 ipc:// a:1
        """.split()
    ),
    (
        "shadow --kv-events tcp://127.0.0.1:9 --kv-events-replay tcp://a:0",
        EXIT_USAGE,
        "--kv-events-replay: no endpoint; got tcp://a:0",
    ),
    ("record --upstream http://127.0.0.1:1 --host a..b -q -o new.jsonl", EXIT_USAGE, "cannot listen there"),
    ("sweep t.jsonl --grid seed=1 --dry-run --report r.html", EXIT_USAGE, "--report: has no effect with"),
    ("sweep t.jsonl --grid seed=1 --dry-run --pareto cost:min", EXIT_USAGE, "--pareto: has no effect with"),
    ("sweep t.jsonl --grid seed=1 --dry-run --on ray", EXIT_USAGE, "--on: has no effect with --dry-run"),
    *(
        (f"sweep t.jsonl --grid seed=1 --on ray:{address}", EXIT_USAGE, "--on: no address of Ray; got ray:")
        for address in ("nowhere", "a:0", "a:99999", "http://a:1", "a:1/x", "ray://a")
    ),
    ("sweep t.jsonl --grid seed=1 --on ray:127.0.0.1:1", EXIT_IO, "cannot reach Ray: Connection refused"),
    ("record --upstream http://127.0.0.1:1 -q -o kept.jsonl", EXIT_OUTPUT_EXISTS, "kept.jsonl.part: left by"),
]


@pytest.mark.parametrize(("line", "code", "words"), LINES, ids=[line[:60] for line, *_ in LINES])
def test_a_hostile_file_or_number_is_one_line(folder: Path, capfd, line: str, code: int, words: str):
    for name, content in FILES.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    Path("mine").write_text("kept")
    Path("nothing").symlink_to("nowhere")
    Path("kept.jsonl.part").symlink_to("mine")
    before = {path: path.lstat().st_mtime_ns for path in folder.iterdir()}
    assert main.run(line.split()) == code
    printed = capfd.readouterr().err
    assert words in printed
    assert code == EXIT_OK or printed.count("\n") == 1
    assert {path: path.lstat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "verb", ["record --upstream http://127.0.0.1:1 -o new.jsonl", "serve -c preset:one-gpu"]
)
def test_an_empty_host_is_not_every_address(folder: Path, capfd, verb: str):
    assert main.run([*verb.split(), "--port", "0", "--host", ""]) == EXIT_USAGE
    assert "--host: is empty" in capfd.readouterr().err


@pytest.mark.parametrize(
    "command", ["trace convert t.jsonl", "trace rechunk t.jsonl --to 16", "curve t.jsonl"]
)
def test_force_replaces_no_pipe_or_device(folder: Path, command: str):
    pipe = folder / "pipe.csv"
    os.mkfifo(pipe)
    assert main.run([*command.split(), "-o", str(pipe), "--force"]) == EXIT_OUTPUT_EXISTS
    assert pipe.is_fifo()
