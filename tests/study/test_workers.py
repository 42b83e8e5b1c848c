"""Workers of a sweep: which cell is next, limits and retries on a simulated machine, and ends of real processes."""

import pytest
from kvcache_sim.extras.study.sweeps.cell import Cell, Limits, Study
from kvcache_sim.extras.study.sweeps.processes import LocalProcess, LocalProcesses
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from support.product.sweeps import LocalRunner
from support.sweep_driver import plan_of
from support.sweep_runs import sweep


@pytest.fixture
def stop():
    own = StopRequest()
    yield own
    own.close()


class FakeWorker:
    """Is ready 30 s after its start; a cell then lasts and ends as scripted, None: the worker dies."""

    def __init__(self, machine):
        self.machine, self.ready_s, self.closed = machine, machine.s + 30, 0
        self.events = [(machine.s + 30, {"ready": 1})]

    def send(self, message):
        if "study" not in message:
            lasts_s, status = self.machine.script[message["cell_id"]].pop(0)
            answer = status and {"status": status, "summary": {}, "error": ""}
            self.events.append((max(self.machine.s, self.ready_s) + lasts_s, answer))

    def receive(self):
        return self.events.pop(0)[1]

    def last_words(self):
        return "memory allocation of 8 bytes failed"

    def close(self):
        self.closed += 1


class FakeMachine:
    def __init__(self, script):
        self.s, self.script, self.workers, self.waits = 0, script, [], 0

    def now_s(self):
        return self.s

    def start(self):
        self.workers.append(FakeWorker(self))
        return self.workers[-1]

    def wait(self, processes, stop, patience_s):
        self.waits += 1
        assert self.waits < 50, "it waits for nothing"
        at, first = min((one.events[0][0], n) for n, one in enumerate(processes) if one.events)
        if patience_s is not None and self.s + patience_s < at:
            self.s += patience_s
            return []
        self.s = at
        return [processes[first]]


#: What cells a, b and c do (seconds and status of each attempt), the limits, and their records with their times.
LONGEST_FIRST = (
    [[(4, "ok")], [(5, "ok")], [(6, "ok")]],
    Limits(),
    [("b", "ok", 1, 5, 35), ("a", "ok", 1, 4, 39), ("c", "ok", 1, 6, 45)],
)
LIMIT_FROM_WHEN_READY = (
    [[(10, "ok")], [(11, "ok")], [(3, "failed")]],
    Limits(10),
    [("b", "timeout", 1, 10, 40), ("a", "ok", 1, 10, 80), ("c", "failed", 1, 3, 83)],
)
ONE_ATTEMPT_MORE_THAN_RETRIES = (
    [[(1, "ok")], [(2, None), (3, None), (4, None)], [(1, "ok")]],
    Limits(retries=2),
    [("b", "died", 3, 4, 99), ("a", "ok", 1, 1, 130), ("c", "ok", 1, 1, 131)],
)
NO_RETRY_WITHOUT_MEMORY = (
    [[(1, "ok")], [(2, None)], [(1, "oom")]],
    Limits(memory_bytes=9),
    [("b", "oom", 1, 2, 32), ("a", "ok", 1, 1, 63), ("c", "oom", 1, 1, 64)],
)


@pytest.mark.parametrize(
    ("script", "limits", "expected"),
    [LONGEST_FIRST, LIMIT_FROM_WHEN_READY, ONE_ATTEMPT_MORE_THAN_RETRIES, NO_RETRY_WITHOUT_MEMORY],
)
def test_a_worker_runs_the_longest_cells_first_under_its_limits(stop, script, limits, expected):
    cells = [Cell(n, "abc"[n], {}, 0, work) for n, work in enumerate((1, 2, 1))]
    machine = FakeMachine({name: list(own) for name, own in zip("abc", script, strict=True)})
    ended = LocalRunner(1, limits, machine).run(Study("m:f", ""), cells, stop)
    assert [(r.cell_id, r.status, r.attempts, r.elapsed_s, machine.s) for r in ended] == expected
    assert {worker.closed for worker in machine.workers} == {1}


def test_a_request_to_stop_never_sinks_and_keeps_its_first_reason(stop):
    for asked, seen in (((1, 5), (1, 5)), ((2, 9), (2, 5)), ((1, 7), (2, 5))):
        stop.ask(*asked)
        assert (stop.level, stop.exit_code) == seen


TROUBLES = {
    "out of memory": "oom",
    "never returns": "timeout",
    "dies": "died",
    "dies once": "ok",
    "raises": "failed",
    "refuses": "failed",
    "not a number": "failed",
    "talks": "ok",
    "none": "ok",
}


def test_each_trouble_ends_its_own_cell_only(tmp_path):
    plan = plan_of(0, "troubled", str(tmp_path), grid={"trouble": list(TROUBLES)})
    limits = Limits(time_s=1.5, memory_bytes=4 << 30, retries=1)
    outcome = sweep(plan, tmp_path / "out", 2, limits)
    records = {str(cell.settings["trouble"]): outcome.records[cell.cell_id] for cell in plan.cells}
    assert {name: record.status for name, record in records.items()} == TROUBLES
    assert outcome.exit_code == 5
    assert records["raises"].error == "ValueError: planted trouble"
    assert records["refuses"].error == "x: planted refusal"
    assert "SIGKILL" in records["dies"].error
    assert [records[name].attempts for name in ("dies", "dies once", "raises")] == [2, 2, 1]


def test_one_worker_serves_many_cells(tmp_path):
    outcome = sweep(plan_of(30, "quick"), tmp_path / "out", 1)
    assert len({record.summary["wall"]["pid"] for record in outcome.records.values()}) == 1


def test_what_has_a_message_or_has_ended_is_ready_and_says_how_it_ended(stop):
    """The first is ready for cells, the second could not begin, the third waits for its study."""
    own, wait = [LocalProcess() for _ in range(3)], LocalProcesses().wait
    try:
        for process, function in zip(
            own, ("support.sweep_cells:quick", "support.sweep_cells:none"), strict=False
        ):
            process.send({"study": {"cell_function": function, "base": ""}, "memory_bytes": None})
        ready = set()
        while len(ready) < 2:
            ready |= {own.index(one) for one in wait(own, stop, 30.0) if own.index(one) not in ready}
        assert ready == {0, 1}
        assert "ready" in own[0].receive()
        assert own[1].receive() is None
        assert own[1].last_words().startswith("exit code 1: AttributeError: ")
        assert own[2].last_words() == "still there"
        stop.ask(1, 130)
        assert [*wait([own[2]], stop, 30.0)] == []
    finally:
        for process in own:
            process.close()
