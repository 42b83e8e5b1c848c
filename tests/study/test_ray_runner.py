"""Cells on Ray: the order in which they start, what a stop, a lost node or a missing file does, and files on nodes."""

import importlib.machinery
import sys
import tempfile
import types
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Study
from kvcache_sim.extras.study.sweeps.ray_runner import RayRunner
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from support.examples import examples


class Errors:
    class RayError(Exception):
        pass

    class TaskCancelledError(RayError):
        pass


class FakeRay(types.ModuleType):
    """Ray as far as the runner calls it: tasks end in the order of ``ends``; each has a record or an error.

    Without ``ends`` the tasks run here, in the order of their start.
    """

    exceptions = Errors

    def __init__(self, ends=None, errors=None, up=False):
        super().__init__("ray")
        self.__spec__ = importlib.machinery.ModuleSpec("ray", None)
        self.ends, self.errors, self.up = ends, errors or {}, up
        self.calls, self.sent, self.cancelled, self.each_wait = [], {}, [], lambda: None

    def is_initialized(self):
        return self.up

    def init(self, **options):
        self.calls.append(("init", options))

    def shutdown(self):
        self.calls.append(("shutdown", {}))

    def put(self, value):
        return ("put", value)

    def remote(self, *task, **options):
        if not task:  # options of a function that follows
            self.calls.append(("remote", options))
            return lambda function: FakeTask(self, function)
        raise AssertionError(task)

    def wait(self, running, timeout):
        self.each_wait()
        order = list(self.sent) if self.ends is None else self.ends
        ended = [one for one in order if one in running][:1]
        return ended, [one for one in running if one not in ended]

    def get(self, reference):
        if isinstance(reference, tuple):
            return reference[1]
        if (reference, False) in self.cancelled and self.errors.get(reference) == "waits":
            raise self.exceptions.TaskCancelledError
        if self.errors.get(reference) == "lost":
            raise self.exceptions.RayError("node\n died")
        if self.ends is None:
            function, (cell, shared, contents) = self.sent[reference]
            return function(cell, self.get(shared), contents)
        return CellRecord(f"c{reference}", "ok")

    def cancel(self, reference, force, recursive=True):
        self.cancelled.append((reference, force))


class FakeTask:
    def __init__(self, ray, function):
        self.ray, self.function = ray, function

    def remote(self, cell, *given):
        self.ray.sent[cell.index] = self.function, (cell, *given)
        return cell.index


def run(ray, cells, level=0, address="", study=None, stop=None):
    own = stop or StopRequest()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "ray", ray)
            return list(RayRunner(address, 3, Limits()).run(study or Study("m:f", "{}"), cells, own))
    finally:
        own.close()


DRAWN = st.tuples(st.integers(1, 3), st.sampled_from(("ok", "lost", "waits")))


@examples(80)
@given(
    st.lists(DRAWN, min_size=4, max_size=6),
    st.randoms(use_true_random=False),
    st.integers(0, 5),
    st.sampled_from((1, 1, 2, 0)),
)
def test_long_cells_start_first_and_each_ends_once(drawn, random, at, level):
    """The first request to stop cancels what waits for a core, the second all that runs."""
    cells = [Cell(k, f"c{k}", {}, work=work) for k, (work, _) in enumerate(drawn)]
    ends = list(range(len(cells)))
    random.shuffle(ends)
    ray, stop, waits = FakeRay(ends, dict(enumerate(how for _, how in drawn))), StopRequest(), []

    def each_wait():
        waits.append(0)
        if level and len(waits) == at:
            stop.ask(level, 130)

    ray.each_wait = each_wait
    records = run(ray, cells, stop=stop)
    assert list(ray.sent) == sorted(range(len(cells)), key=lambda k: (-drawn[k][0], k))
    # the wait in which the request comes still returns a cell; a second request ends the loop behind it
    asked = 0 < at <= len(cells) if level else False
    taken = ends[:at] if asked and level == 2 else ends
    behind = set(ends[at:]) if asked else set()
    gone = [k for k in taken if asked and level == 1 and k in behind and drawn[k][1] == "waits"]
    said = {"ok": "ok", "lost": "died", "waits": "ok"}
    kept = [(f"c{k}", said[drawn[k][1]]) for k in taken if k not in gone]
    assert [(one.cell_id, one.status) for one in records] == kept
    assert sorted(ray.cancelled) == sorted((k, level == 2) for k in behind)


@pytest.mark.parametrize("address", ["", "head:6379"])
def test_ray_is_started_and_ended_by_the_runner_unless_it_is_there(address):
    ray = FakeRay([0])
    run(ray, [Cell(0, "c0", {})], address=address)
    (name, options), remote, last = ray.calls
    assert (name, remote, last) == ("init", ("remote", {"max_retries": 5, "num_cpus": 1}), ("shutdown", {}))
    assert sys.path[-1] in options.pop("runtime_env")["env_vars"]["PYTHONPATH"].split(":")
    assert options["address"] == (address or "local")
    assert options.get("num_cpus") == (None if address else 3)
    there = FakeRay([0], up=True)
    run(there, [Cell(0, "c0", {})], address=address)
    assert [name for name, _ in there.calls] == ["remote"]

    def refuse(**options):
        raise ConnectionError("no\n node")

    ray.init = refuse
    with pytest.raises(InputOutputError, match="cannot reach Ray: no node"):
        run(ray, [Cell(0, "c0", {})], address=address)


def test_a_node_keeps_one_worker_and_each_file_by_its_content(tmp_path, monkeypatch):
    """A file that a node has is read at its own path, another one is written there once."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    here, gone = tmp_path / "here.jsonl", tmp_path / "gone.jsonl"
    here.write_text("mine")
    (tmp_path / "node").mkdir()
    study = Study("support.sweep_cells:reads", "{}", files={str(here): "aa", str(gone): "bb"})
    pids = []
    for one in (study, study, replace(study, base="{a: 1}")):
        gone.write_text("sent")
        ray = FakeRay()
        ray.each_wait = lambda: gone.unlink(missing_ok=True)  # the node does not have it
        found = run(ray, [Cell(k, f"c{k}", {}) for k in range(2)], study=one)
        assert [record.status for record in found] == ["ok", "ok"], found[0].error
        assert found[0].summary["texts"] == {"here.jsonl": "mine", "gone.jsonl": "sent"}
        [(path, moved)] = found[0].summary["moved"].items()
        assert (path, Path(moved).parent.name, Path(moved).read_text()) == (str(gone), "bb", "sent")
        assert [own.name for own in Path(moved).parent.iterdir()] == ["gone.jsonl"]
        pids.append({record.summary["pid"] for record in found})
    assert pids[0] == pids[1] != pids[2]
    assert len(pids[0]) == len(pids[2]) == 1
    gone.unlink(missing_ok=True)
    with pytest.raises(InputOutputError, match="cannot read"):
        run(FakeRay([0]), [Cell(0, "c0", {})], study=study)
