"""Faults of a sweep: killed, interrupted, with damaged files; it always resumes where it was."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLES = ("results.csv", "results.parquet")


def start(directory, *, cells=10, jobs=2, function="counted", base="", env=None):
    words = [TESTS / "support" / "sweep_driver.py", directory, cells, jobs, function, base]
    command = [sys.executable, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        command, cwd=TESTS, env={**os.environ, "PYTHONPATH": str(TESTS), **(env or {})}, **pipes
    )


def finish(directory, **options):
    process = start(directory, **options)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def tables(directory):
    return {name: (directory / name).read_bytes() for name in TABLES}


def children(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    base = tmp_path_factory.mktemp("undisturbed")
    code, out, err = finish(base / "out", base=base)
    assert code == 0, out + err
    return tables(base / "out")


def runs_of(base):
    return {path.name.removeprefix("ran-"): len(path.read_text()) for path in base.glob("ran-*")}


@pytest.mark.parametrize("point", range(8))
def test_kill_the_coordinator_anywhere_and_resume(tmp_path, undisturbed, point):
    out = tmp_path / "out"
    process = start(out, base=tmp_path)
    time.sleep(random.Random(point).uniform(0.05, 0.45))
    process.kill()
    process.communicate()
    recorded = {path.stem for path in (out / "cells").glob("*.json")} if (out / "cells").exists() else set()
    before = runs_of(tmp_path)
    code, text, err = finish(out, base=tmp_path)
    assert code == 0, text + err
    assert tables(out) == undisturbed
    after = runs_of(tmp_path)
    assert {name: after[name] - before[name] for name in recorded} == dict.fromkeys(recorded, 0)
    assert not list((out / "cells").glob(".*.tmp"))


def test_workers_die_with_the_coordinator(tmp_path):
    process = start(tmp_path / "out", cells=40, base=tmp_path)
    process.stdout.readline()
    process.stdout.readline()  # a first cell has ended: the workers are there
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in workers if alive(pid)]


def test_a_killed_worker_is_replaced_and_its_cell_runs_again(tmp_path, undisturbed):
    process = start(tmp_path / "out", base=tmp_path)
    process.stdout.readline()
    process.stdout.readline()
    os.kill(children(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert tables(tmp_path / "out") == undisturbed


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_a_state_to_resume_from(tmp_path, undisturbed, number, code):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    process = start(tmp_path / "out", base=tmp_path)
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    recorded = len(list((tmp_path / "out" / "cells").glob("*.json")))
    assert 1 <= recorded < 10
    if number == signal.SIGINT:  # gentle: what was running is finished and kept
        assert sum(runs_of(tmp_path).values()) == recorded
    code, text, err = finish(tmp_path / "out", base=tmp_path)
    assert code == 0
    assert text.startswith(f"cached={recorded} ")
    assert tables(tmp_path / "out") == undisturbed


def test_a_second_interrupt_does_not_wait(tmp_path):
    process = start(tmp_path / "out", cells=2, function="endless", base=tmp_path)
    process.stdout.readline()
    while len(list(tmp_path.glob("ran-*"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert process.poll() is None  # it waits for the running cells
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == 130


def test_two_sweeps_on_one_directory(tmp_path):
    first = start(tmp_path / "out", cells=2, function="endless", base=tmp_path)
    first.stdout.readline()
    code, _, err = finish(tmp_path / "out", cells=2, function="endless", base=tmp_path)
    first.kill()
    first.communicate()
    assert code == 6
    assert f"pid {first.pid} on " in err
    process = start(tmp_path / "out", cells=2, function="endless", base=tmp_path)
    assert process.stdout.readline()  # the dead holder's lock is free at once
    process.kill()
    process.communicate()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "not json", "other cell"])
def test_damaged_records_are_set_aside_and_only_they_run_again(tmp_path, undisturbed, damage):
    out = tmp_path / "out"
    assert finish(out, base=tmp_path)[0] == 0
    victim, other = sorted((out / "cells").glob("*.json"))[:2]
    data = victim.read_bytes()
    victim.write_bytes(
        {
            "flip": data.replace(b'"p99":1', b'"p99":2'),
            "cut": data[: len(data) // 2],
            "empty": b"",
            "not json": b"\xff\x00junk",
            "other cell": other.read_bytes(),
        }[damage]
    )
    code, text, err = finish(out, base=tmp_path)
    assert code == 0, err
    assert "cached=9 damaged=1" in text
    counts = runs_of(tmp_path)
    assert [name for name, count in counts.items() if count == 2] == [victim.stem]
    assert len(list((out / "quarantine").iterdir())) == 1
    assert tables(out) == undisturbed


@pytest.mark.parametrize("name", ["plan.json", "results.sqlite", "results.parquet", "results.csv"])
def test_damaged_tables_are_made_again_without_running_a_cell(tmp_path, undisturbed, name):
    out = tmp_path / "out"
    assert finish(out, base=tmp_path)[0] == 0
    data = (out / name).read_bytes()
    (out / name).write_bytes(b"junk" + data[: len(data) // 3])
    code, text, err = finish(out, base=tmp_path)
    assert code == 0, err
    assert "cached=10" in text
    assert set(runs_of(tmp_path).values()) == {1}
    assert tables(out) == undisturbed
    database = sqlite3.connect(out / "results.sqlite")
    assert database.execute("SELECT count(*) FROM cells WHERE status = 'ok'").fetchone() == (10,)
    database.close()
