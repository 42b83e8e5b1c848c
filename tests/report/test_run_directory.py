"""A run directory is whole or absent, never replaced unasked, and reads back as it was."""

import contextlib
import os
import resource
import signal
import subprocess
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.base.errors import InputOutputError, KvsimError, OutputExistsError, UsageError
from kvcache_sim.base.regular_files import exchange
from kvcache_sim.metrics import run_directory
from kvcache_sim.metrics.columns import EVENT_COLUMNS
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.run_directory import COMPLETE, open_numbered_directory, open_run_directory
from support.product.reports import read_table, write_table


def write_run(target: Path, force: bool = False, seed: int = 0) -> None:
    with open_run_directory(target, force) as directory:
        directory.write_json("run.json", {"seed": seed})
        directory.write_json("summary.json", {"requests": {"arrived": 1}})
        directory.write("scenario.yaml", "name: run\n")
        directory.commit()


def left_over(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if path.name.startswith("."))


def test_a_run_reads_back_and_its_marker_suits_sha256sum(tmp_path):
    write_run(tmp_path / "out")
    run = load_run(tmp_path / "out")
    assert (run.manifest, run.scenario) == ({"seed": 0}, "name: run\n")
    assert left_over(tmp_path) == []
    subprocess.run(["sha256sum", "-c", "--quiet", COMPLETE], cwd=tmp_path / "out", check=True)


def test_a_run_that_fails_leaves_nothing(tmp_path):
    def fail() -> None:
        with open_run_directory(tmp_path / "out", False) as directory:
            directory.write("run.json", "{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_replaced_unasked_and_only_runs_when_asked(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    write_run(target)  # an empty directory may be filled
    with pytest.raises(OutputExistsError, match="the output exists; --force"):
        write_run(target, seed=1)
    assert load_run(target).manifest == {"seed": 0}
    write_run(target, force=True, seed=2)
    assert load_run(target).manifest == {"seed": 2}
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter1").write_text("years of work")
    with pytest.raises(OutputExistsError, match="not a run directory"):
        write_run(foreign, force=True)
    assert (foreign / "chapter1").read_text() == "years of work"
    assert left_over(tmp_path) == []


def test_directories_are_exchanged_in_one_step(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for own in (first, second):
        own.mkdir()
        (own / own.name).touch()
    assert exchange(first, second)
    assert [path.name for own in (first, second) for path in own.iterdir()] == ["second", "first"]


def test_a_run_that_finished_before_the_lock_was_taken_stays(tmp_path, monkeypatch):
    """Both looked at the name when it was free; the other took the lock first, and finished."""
    other, lock = tmp_path / "other", run_directory.FileLock
    write_run(other)

    def locked(path):
        if other.exists():
            os.rename(other, tmp_path / "out")
        return lock(path)

    monkeypatch.setattr(run_directory, "FileLock", locked)
    began = []
    with (
        pytest.raises(OutputExistsError, match="the output exists"),
        open_run_directory(tmp_path / "out", False),
    ):
        began.append("to simulate")
    assert began == []
    assert load_run(tmp_path / "out").manifest == {"seed": 0}


def test_two_runs_into_one_directory_the_second_refuses(tmp_path):
    with open_run_directory(tmp_path / "out", False):
        with pytest.raises(
            OutputExistsError, match=f"another process is writing here; got pid {os.getpid()} on "
        ):
            write_run(tmp_path / "out")
        with pytest.raises(OutputExistsError):
            write_run(tmp_path / "out", force=True)
    write_run(tmp_path / "out")


def test_what_a_killed_run_left_is_swept_away(tmp_path):
    part = tmp_path / ".out.part"
    part.mkdir()
    (part / "stale.parquet").write_text("half")
    (part / ".lock").write_text("4194304")
    write_run(tmp_path / "out")
    assert not (tmp_path / "out" / "stale.parquet").exists()


def folder_of_files(folder: Path) -> Path:
    folder.mkdir()
    (folder / "thesis.json").write_text("years of work")
    return folder


def test_a_link_at_the_neighboring_name_deletes_nothing(tmp_path):
    victim = folder_of_files(tmp_path / "victim")
    (victim / ".lock").write_text("")
    (tmp_path / ".out.part").symlink_to(victim)
    with pytest.raises(
        OutputExistsError, match=r"\.out\.part: the name of the unfinished run is taken; rename it"
    ):
        write_run(tmp_path / "out")
    assert (victim / "thesis.json").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("other", ["COMPLETE notes", "run.json.bak", "a link"])
def test_a_folder_that_only_looks_like_an_unfinished_run_stays(tmp_path, other):
    own, lock = folder_of_files(tmp_path / ".out.part"), tmp_path / "lock"
    lock.touch()
    (own / ".lock").symlink_to(lock) if other == "a link" else (own / ".lock").touch()
    (own / other.replace("a link", "summary.json")).touch()
    with pytest.raises(OutputExistsError, match="the name of the unfinished run is taken"):
        write_run(tmp_path / "out")
    assert (own / "thesis.json").read_text() == "years of work"


@pytest.mark.parametrize("name", [".out.part", ".out.old"])
@pytest.mark.parametrize("force", [False, True])
def test_folders_of_a_user_stay(tmp_path, name, force):
    if force:
        write_run(tmp_path / "out")
    own = folder_of_files(tmp_path / name)
    with contextlib.suppress(OutputExistsError) if name == ".out.part" else contextlib.nullcontext():
        write_run(tmp_path / "out", force, seed=1)
    assert (own / "thesis.json").read_text() == "years of work"


@pytest.mark.parametrize("exchanges", [True, False])
def test_force_on_a_link_replaces_the_run_and_keeps_the_link(tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(run_directory, "exchange", lambda *_: False)
    write_run(tmp_path / "out")
    (tmp_path / "latest").symlink_to("out")
    for seed in (1, 2, 3):
        write_run(tmp_path / "latest", force=True, seed=seed)
        assert (tmp_path / "latest").is_symlink()
        assert load_run(tmp_path / "out").manifest == {"seed": seed}
        assert left_over(tmp_path) == []


@pytest.mark.parametrize("after", [True, False])
def test_a_process_killed_at_the_exchange_leaves_a_whole_run(tmp_path, monkeypatch, after):
    exchanged = run_directory.exchange

    def killed(*names: Path) -> bool:
        if after:
            exchanged(*names)
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    write_run(tmp_path / "out", seed=1)
    monkeypatch.setattr(run_directory, "exchange", killed)
    child = get_context("fork").Process(target=write_run, args=(tmp_path / "out", True, 2))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert load_run(tmp_path / "out").manifest == {"seed": 2 if after else 1}
    assert left_over(tmp_path) == [".out.part"]
    monkeypatch.undo()
    write_run(tmp_path / "out", force=True, seed=3)
    assert load_run(tmp_path / "out").manifest == {"seed": 3}
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("marker", "said"),
    [("", "got nothing"), ("[]", r"got '\[\]'"), (f"{'0' * 64}  ../run.json\n", "not a list of files")],
)
def test_a_marker_that_lists_no_files_is_refused(tmp_path, marker, said):
    write_run(tmp_path / "out")
    (tmp_path / "out" / COMPLETE).write_text(marker)
    with pytest.raises(InputOutputError, match=said):
        load_run(tmp_path / "out")


@pytest.mark.parametrize("name", [COMPLETE, "run.json"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_a_file_that_is_none_is_refused_at_once(tmp_path, name, make):
    write_run(tmp_path / "out")
    path = tmp_path / "out" / name
    path.unlink()
    make(path)
    with pytest.raises(KvsimError, match=r"not a finished run|not a regular file"):
        load_run(tmp_path / "out")


def test_an_unfinished_or_altered_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="not a finished run"):
        load_run(tmp_path)
    write_run(tmp_path / "out")
    (tmp_path / "out" / "summary.json").write_text("{}")
    with pytest.raises(InputOutputError, match=r"summary.json: is not what was written"):
        load_run(tmp_path / "out")
    write_run(tmp_path / "out", force=True)
    (tmp_path / "out" / "scenario.yaml").unlink()
    with pytest.raises(InputOutputError, match=r"scenario.yaml: cannot be read"):
        load_run(tmp_path / "out")


def next_number(runs):
    with open_numbered_directory(runs, "a", "0123456789") as directory:
        return directory.target.name


def test_runs_are_numbered_upwards(tmp_path):
    runs = tmp_path / "runs"
    assert next_number(runs) == "1-a-012345"
    for name in ("1-a-012345", "9-b-c-abcdef", "12-notes", "x", ".13-a-012345.part"):
        (runs / name).mkdir(parents=True)
    assert next_number(runs) == "10-a-012345"
    with open_run_directory(runs / "10-a-012345", False):
        assert next_number(runs) == "11-a-012345"


def test_a_table_reads_back_and_equal_columns_give_equal_bytes(tmp_path):
    count = 1000
    columns = {name: np.arange(count) % 7 for name in EVENT_COLUMNS}
    columns["kind"] = CodedText(np.arange(count, dtype=np.int32) % 2, ("prefill_start", "step"))
    columns["detail"] = CodedText(np.zeros(count, np.int32), ("</script>é",))
    for name in ("a", "b"):
        write_table(tmp_path / name, columns, EVENT_COLUMNS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = read_table(tmp_path / "a")
    assert list(again) == list(EVENT_COLUMNS)
    assert again["detail"].words == ("</script>é",)
    assert again["kind"].codes.tolist() == columns["kind"].codes.tolist()
    assert again["time_ns"].dtype == np.int64
    assert again["machine"].dtype == np.int16


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_written_to_no_file(tmp_path, value):
    with open_run_directory(tmp_path / "out", False) as directory:
        with pytest.raises(ValueError, match="Out of range"):
            directory.write_json("run.json", {"x": value})
        directory.write_json("run.json", {"é": [1.5, None]})
        assert (directory.part / "run.json").read_text() == '{\n  "é": [\n    1.5,\n    null\n  ]\n}\n'


@pytest.mark.parametrize("name", ["notes.txt", "notes.json", "own.parquet", "plots", ".hidden"])
def test_force_keeps_what_is_no_file_of_the_run(tmp_path, name):
    target = tmp_path / "out"
    write_run(target)
    own = target / name
    if name == "plots":
        own.mkdir()
    else:
        own.write_text("mine")
    with pytest.raises(OutputExistsError, match=f"out/{name}: not a file of the run; --force keeps it"):
        write_run(target, force=True, seed=1)
    assert own.exists()
    assert load_run(target).manifest == {"seed": 0}
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("spare", [0, 1])
def test_nothing_stays_where_no_descriptor_is_left(tmp_path, spare):
    """A folder is listed with a descriptor; the files that a run made are known without."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened, open_run_directory(tmp_path / "out", False) as directory:
        directory.table("events", EVENT_COLUMNS)
        directory.write("run.json", "{}")
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        used = max(map(int, os.listdir("/dev/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, limits[1]))
    assert list(tmp_path.iterdir()) == []
