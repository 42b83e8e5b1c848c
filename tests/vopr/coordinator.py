"""Sweeps whose workers, clock and disk are simulated: any order of answers, deaths, hangs, kills, full disks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.errors import EXIT_SIGINT, InputOutputError
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.coordinator import SweepOutcome
from kvcache_sim.extras.study.sweeps.processes import Process
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from support.product.sweeps import CellStore, LocalRunner, run_sweep
from support.sweep_driver import plan_of

from vopr.faulty import FaultyDisk, Killed
from vopr.finding import oracle
from vopr.shrink import without_parts

LIMIT_S = 30.0
#: How an attempt at a cell ends.
ENDS = ("ok", "ok", "ok", "ok", "died", "failed", "oom", "hangs")


class Session(NamedTuple):
    """One command on the sweep's directory, and its fault: a count of file changes, or of finished cells."""

    fault: str = "none"
    at: int = 0


class Sweep(NamedTuple):
    """A sweep and its faults, all drawn from a seed."""

    seed: int
    cells: int
    jobs: int
    sessions: tuple[Session, ...]
    #: Share of waits in which the clock jumps.
    jumps: float = 0.0
    troubles: bool = True


def draw(seed: int) -> Sweep:
    """Return a random sweep."""
    pick = random.Random(f"sweep {seed}")
    faults = ["kill", "kill", "full", "stop", "stop twice", "none"]
    sessions = [Session(pick.choice(faults), pick.randint(1, 60)) for _ in range(pick.randint(1, 4))]
    return Sweep(
        seed,
        pick.randint(1, 9),
        pick.randint(1, 4),
        tuple(sessions),
        pick.choice([0.0, 0.0, 0.1]),
        pick.random() < 0.8,
    )


class SimulatedProcess:
    """A worker: it is ready after a while, and answers each cell as drawn."""

    def __init__(self, owner: SimulatedProcesses) -> None:
        self._owner = owner
        #: Times and messages to come, in order; None is its death.
        self.coming: list[tuple[float, object | None]] = []
        self.is_closed = False
        self._began = False

    def send(self, message: object) -> None:
        assert isinstance(message, Mapping)
        assert not self.is_closed, "a message to a closed process"
        own = self._owner
        if not self._began:
            self._began = True
            ready_s = own.now_s() + own.draw.choice([0.0, 0.1, 2.0])
            self.coming.append((ready_s, {"ready": 1}))
            return
        answers: list[Any] = [message for _, message in self.coming]
        assert not any(answer is None or "status" in answer for answer in answers), "two cells at a time"
        cell = str(message["cell_id"])
        assert cell not in own.finished, f"{cell} runs again"
        assert cell not in own.running, f"{cell} runs twice"
        own.running[cell] = self
        begin_s = max([own.now_s(), *(time for time, _ in self.coming)])
        own.attempts[cell] = own.attempts.get(cell, 0) + 1
        end = own.draw.choice(ENDS) if own.troubles else "ok"
        at_s = begin_s + own.draw.choice([0.0, 0.5, 1.0, 1.0, LIMIT_S])
        x = float(message["settings"]["x"])
        summary = {"latency": {"p99": 10.0 + x}, "wall": {"cpu_s": own.draw.random()}}
        answer = {
            "status": end,
            "summary": summary if end == "ok" else {},
            "error": "" if end == "ok" else "drawn",
        }
        if end != "hangs":
            self.coming.append((at_s, None if end == "died" else answer))
            own.ends[id(self)] = cell

    def receive(self) -> object | None:
        time_s, message = self.coming[0]
        assert time_s <= self._owner.now_s(), "a receive that would wait"
        if message is not None:
            self.coming.pop(0)
        if message is None or "status" in message:  # type: ignore[operator]
            self._owner.running.pop(self._owner.ends.pop(id(self), ""), None)
        return message

    def last_words(self) -> str:
        return "SIGKILL: drawn"

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True
        self._owner.alive.remove(self)
        running = self._owner.running
        for cell in [cell for cell, process in running.items() if process is self]:
            del running[cell]


class SimulatedProcesses:
    """Processes and a clock that are drawn."""

    def __init__(self, case: Sweep, session: int, finished: set[str], troubles: bool) -> None:
        self.draw = random.Random(f"{case.seed} {session}")
        self.finished, self.troubles, self._case = finished, troubles, case
        self.running: dict[str, SimulatedProcess] = {}
        self.ends: dict[int, str] = {}
        self.attempts: dict[str, int] = {}
        self.alive: list[SimulatedProcess] = []
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def start(self) -> SimulatedProcess:
        self.alive.append(SimulatedProcess(self))
        assert len(self.alive) <= self._case.jobs, "more workers than jobs"
        return self.alive[-1]

    def wait(
        self, processes: Sequence[Process], stop: StopRequest | None, patience_s: float | None
    ) -> Sequence[Process]:
        own: list[Any] = list(processes)
        due = [process.coming[0][0] for process in own if process.coming]
        until = self._now_s + patience_s if patience_s is not None else None
        times = [*due, *([until] if until is not None else [])]
        assert times, "it waits for ever"
        self._now_s = max(self._now_s, min(times))
        if self.draw.random() < self._case.jumps:
            self._now_s += self.draw.choice([1.0, 100.0])
        ready = [process for process in own if process.coming and process.coming[0][0] <= self._now_s]
        self.draw.shuffle(ready)
        return ready[: self.draw.randint(1, len(ready))] if ready else []


class _Watch:
    """An observer that asks the sweep to stop after so many cells."""

    def __init__(self, session: Session, stop: StopRequest, finished: set[str]) -> None:
        self._session, self._stop, self._finished, self._seen = session, stop, finished, 0
        self.damaged: list[str] = []

    def begin(self, total: int, cached: int, damaged: Sequence[str]) -> None:
        self.damaged += damaged

    def cell_ended(self, cell: Any, record: Any) -> None:
        if record.status == "ok":
            self._finished.add(cell.cell_id)
        self._seen += 1
        if self._session.fault.startswith("stop") and self._seen >= self._session.at % 8:
            self._stop.ask(2 if self._session.fault == "stop twice" else 1, EXIT_SIGINT)


def run(case: Sweep, folder: Path) -> str:
    """Run the sessions one after another, then one without faults, whose tables must be those of a quiet sweep."""
    finished: set[str] = set()
    for number, session in enumerate((*case.sessions, Session())):
        is_last = number == len(case.sessions)
        with oracle(f"a sweep: {session.fault}"):
            outcome = _session(
                case, number, session, folder / "sweep", finished, case.troubles and not is_last
            )
            records, damaged = CellStore(folder / "sweep").peek(
                f.stem for f in (folder / "sweep/cells").glob("*")
            )
            assert not damaged, "a record is half-written"
            saved = {name for name, record in records.items() if record.status == "ok"}
            assert finished <= saved, "a finished cell has no record"
            finished |= saved
            assert outcome is None or outcome.cached <= len(saved)
    with oracle("the tables of a sweep"):
        assert outcome is not None
        assert outcome.exit_code == 0, (outcome.failed, outcome.missing)
        quiet = Sweep(case.seed, case.cells, 1, (), 0.0, False)
        assert _session(quiet, 0, Session(), folder / "quiet", set(), False) is not None
        for name in ("results.csv", "results.parquet", "plan.json"):
            assert (folder / "sweep" / name).read_bytes() == (folder / "quiet" / name).read_bytes(), name
        left = {path.name for path in (folder / "sweep").iterdir()}
        assert left <= set("cells plan.json results.csv results.parquet results.sqlite sweep.lock".split())
    return ", ".join(sorted({session.fault for session in case.sessions})) or "quiet"


def _session(
    case: Sweep, number: int, session: Session, directory: Path, finished: set[str], troubles: bool
) -> SweepOutcome | None:
    """Run one command; None if it was killed or found the disk full."""
    processes = SimulatedProcesses(case, number, set(finished), troubles)
    faults = {"kill": {"kill_at": session.at}, "full": {"full_at": session.at}}
    disk, stop = FaultyDisk(**faults.get(session.fault, {})), StopRequest()
    watch = _Watch(session, stop, finished)
    runner = LocalRunner(case.jobs, Limits(time_s=LIMIT_S if troubles else None), processes)
    try:
        outcome = run_sweep(plan_of(case.cells, "quick"), directory, runner, stop, watch, disk=disk)
    except Killed:
        return None
    except InputOutputError:
        if session.fault != "full":
            raise
        return None
    finally:
        stop.close()
        assert not processes.alive, "workers are left"
    assert not watch.damaged, f"set aside: {watch.damaged}"
    most = Limits().retries + 1
    assert all(count <= most for count in processes.attempts.values()), "more attempts than allowed"
    assert (outcome.stopped_by != 0) == (stop.level > 0)
    return outcome


def smaller(case: Sweep) -> Iterator[Sweep]:
    """Yield a sweep with fewer cells, workers and sessions, without jumps and troubles."""
    for cells in range(1, case.cells):
        yield case._replace(cells=cells)
    for sessions in without_parts(case.sessions):
        yield case._replace(sessions=tuple(sessions))
    for change in ({"jobs": 1}, {"jumps": 0.0}, {"troubles": False}):
        if case._replace(**change) != case:
            yield case._replace(**change)


def shown(case: Sweep, folder: Path) -> str:
    """Return the sweep, which is also written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(case._asdict(), indent=1))
    return str(case)
