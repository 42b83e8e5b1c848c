"""Cells on Ray: which calls reach it, in which order, and what a stop, a lost node or a missing file does."""

import importlib.machinery
import sys
import types
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.extras.study.sweeps import ray_runner
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Study
from kvcache_sim.extras.study.sweeps.ray_runner import RayRunner
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from support.examples import examples


class FakeRay(types.ModuleType):
    """Ray as far as the runner calls it: tasks end in the order of ``ends``; each has a record or an error."""

    def __init__(self, ends=(), errors=None, up=False):
        super().__init__("ray")
        self.__spec__ = importlib.machinery.ModuleSpec("ray", None)
        self.ends, self.errors, self.up = list(ends), errors or {}, up
        self.calls, self.sent, self.cancelled, self.each_wait = [], [], [], lambda: None
        error = type("RayError", (Exception,), {})
        self.exceptions = types.SimpleNamespace(
            RayError=error, TaskCancelledError=type("Cancelled", (error,), {})
        )

    def is_initialized(self):
        return self.up

    def init(self, **options):
        self.calls.append(("init", options))

    def shutdown(self):
        self.calls.append(("shutdown", {}))

    def put(self, value):
        return ("put", value)

    def remote(self, **options):
        self.calls.append(("remote", options))
        return lambda function: types.SimpleNamespace(
            remote=lambda cell, *_: self.sent.append(cell.index) or cell.index
        )

    def wait(self, running, timeout):
        self.each_wait()
        ended = [one for one in self.ends if one in running][:1]
        return ended, [one for one in running if one not in ended]

    def get(self, reference):
        if isinstance(reference, tuple):
            return reference[1]
        if (reference, False) in self.cancelled and self.errors.get(reference) == "waits":
            raise self.exceptions.TaskCancelledError
        if self.errors.get(reference) == "lost":
            raise self.exceptions.RayError("node\n died")
        return CellRecord(f"c{reference}", "ok")

    def cancel(self, reference, force, recursive=True):
        self.cancelled.append((reference, force))


def run(ray, cells, stop, address="", files=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", ray)
        return list(RayRunner(address, 3, Limits()).run(Study("m:f", "{}", files=files or {}), cells, stop))


@examples(80)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(("ok", "lost", "waits"))), min_size=4, max_size=6),
    st.randoms(use_true_random=False), st.integers(0, 5), st.sampled_from((1, 1, 2, 0)),
)  # fmt: skip
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
    records = run(ray, cells, stop)
    stop.close()
    assert ray.sent == sorted(range(len(cells)), key=lambda k: (-drawn[k][0], k))
    # the wait in which the request comes still returns a cell; a second request ends the loop behind it
    asked = 0 < at <= len(cells) if level else False
    taken = ends[:at] if asked and level == 2 else ends
    behind = set(ends[at:]) if asked else set()
    gone = [k for k in taken if asked and level == 1 and k in behind and drawn[k][1] == "waits"]
    said = {"ok": "ok", "lost": "died", "waits": "ok"}
    assert [(one.cell_id, one.status) for one in records] == [
        (f"c{k}", said[drawn[k][1]]) for k in taken if k not in gone
    ]
    assert all(one.error == "lost on Ray: node died" for one in records if one.status == "died")
    assert sorted(ray.cancelled) == sorted((k, level == 2) for k in behind)


@pytest.mark.parametrize("address", ["", "head:6379"])
def test_ray_is_started_and_ended_by_the_runner_unless_it_is_there(address):
    stop = StopRequest()
    ray = FakeRay([0])
    run(ray, [Cell(0, "c0", {})], stop, address)
    (name, options), remote, last = ray.calls
    assert (name, remote, last) == ("init", ("remote", {"max_retries": 5, "num_cpus": 1}), ("shutdown", {}))
    assert sys.path[-1] in options.pop("runtime_env")["env_vars"]["PYTHONPATH"].split(":")
    alone = {"address": "local", "num_cpus": 3, "include_dashboard": False}
    where = {"address": address} if address else alone
    assert options == {"log_to_driver": False, "logging_level": "ERROR", **where}
    there = FakeRay([0], up=True)
    run(there, [Cell(0, "c0", {})], stop, address)
    assert [name for name, _ in there.calls] == ["remote"]

    def refuse(**options):
        raise ConnectionError("no\n node")

    ray.init = refuse
    with pytest.raises(InputOutputError, match=f"--on ray:{address}: cannot reach Ray: no node"):
        run(ray, [Cell(0, "c0", {})], stop, address)
    stop.close()


def test_a_node_keeps_one_worker_and_each_file_by_its_content(tmp_path, monkeypatch):
    ray, made, closed = FakeRay(), [], []

    class Runner:
        def __init__(self, study, limits):
            made.append((study, limits))

        def run(self, cell):
            return CellRecord(cell.cell_id, "ok", {"worker": len(made)})

        def close(self):
            closed.append(len(made))

    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_runner, "CellRunner", Runner)
    monkeypatch.setattr(ray_runner, "_KEPT", {})
    monkeypatch.setattr("atexit.register", lambda call: None)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "node"))
    here, gone = tmp_path / "here.jsonl", tmp_path / "gone.jsonl"
    here.write_text("mine")
    study = Study("m:f", "{}", files={str(here): "aa", str(gone): "bb"})
    contents = {str(here): ("put", b"theirs"), str(gone): ("put", b"sent")}
    asked = [study, study, replace(study, base="{a: 1}"), study]
    found = [
        ray_runner._run_on_node(Cell(k, f"c{k}", {}), (one, Limits(7.0)), contents)
        for k, one in enumerate(asked)
    ]
    assert [record.summary["worker"] for record in found] == [1, 1, 2, 3]
    assert closed == [1, 2]
    (moved,) = {tuple(one.moved.items()) for one, limits in made if limits == Limits(7.0)}
    assert [name for name, _ in moved] == [str(gone)]
    (there,) = (tmp_path / "node").rglob("*.jsonl")
    assert (str(there), there.read_bytes(), there.parent.name) == (moved[0][1], b"sent", "bb")
    assert [path.name for path in there.parent.iterdir()] == ["gone.jsonl"]
    with pytest.raises(InputOutputError, match="cannot read: No such file"):
        run(FakeRay([0]), [Cell(0, "c0", {})], types.SimpleNamespace(level=0), files={str(gone): "bb"})
