"""Cell functions that stand in for the simulator: quick, hungry, endless, deadly."""

import os
import signal
import time
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sweeps.cell import Cell, Study


def quick(study: Study, cell: Cell) -> dict[str, object]:
    x = float(cell.settings.get("x", 0))
    return {
        "latency": {"ttft": {"p99": 10.0 + x, "avg": x / 3}},
        "cost": {"total": 5.0 - x},
        "digest": {"events": f"{cell.cell_id}"},
        "wall": {"cpu_s": time.process_time(), "pid": os.getpid()},
    }


def counted(study: Study, cell: Cell) -> dict[str, object]:
    """Leave a mark for each run, in the folder named by the scenario text."""
    with open(Path(study.base) / f"ran-{cell.cell_id}", "a") as file:
        file.write("x")
    time.sleep(0.02)
    return quick(study, cell)


def troubled(study: Study, cell: Cell) -> dict[str, object]:
    """Do what the setting ``trouble`` says."""
    trouble = cell.settings.get("trouble", "")
    if trouble == "out of memory":
        return {"size": len(bytearray(8 << 30))}
    if trouble == "never returns":
        while True:
            pass
    if trouble == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "dies once" and not (mark := Path(study.base) / "died").exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "raises":
        raise ValueError("planted\ntrouble")
    if trouble == "refuses":
        raise UsageError("planted refusal", where="x")
    if trouble == "not a number":
        return {"value": float("nan")}
    if trouble == "talks":
        print("x" * 200_000)
    return quick(study, cell)


def spins(study: Study, cell: Cell) -> dict[str, object]:
    """Burn a known amount of CPU time."""
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    return quick(study, cell)


def endless(study: Study, cell: Cell) -> dict[str, object]:
    """Leave a mark and never return."""
    (Path(study.base) / f"ran-{cell.cell_id}").touch()
    while True:
        time.sleep(1)


def slow(study: Study, cell: Cell) -> dict[str, object]:
    """Leave a mark for each run and take long enough to be killed in it."""
    with open(Path(study.base) / f"ran-{cell.cell_id}", "a") as file:
        file.write("x")
    time.sleep(0.3)
    return quick(study, cell)


def priced(study: Study, cell: Cell) -> dict[str, object]:
    """Cost x, twice that when bad; TTFT p99 is 10 s − x."""
    x, bad = float(cell.settings["x"]), cell.settings["kind"] == "bad"
    return {"cost": {"total": x * (2 if bad else 1)}, "latency": {"ttft": {"p99": 1000 * (10 - x)}}}


def reads(study: Study, cell: Cell) -> dict[str, object]:
    """Return the text of each input file where it is on this machine, and the process that read it."""
    texts = {Path(path).name: Path(study.moved.get(path, path)).read_text() for path in study.files}
    return {"texts": texts, "moved": dict(study.moved), "pid": os.getpid()}


def priced_later(study: Study, cell: Cell) -> dict[str, object]:
    """Fail once, then be priced."""
    mark = Path(study.base) / f"failed-{cell.cell_id}"
    if not mark.exists():
        mark.touch()
        raise ValueError("once")
    return priced(study, cell)
