"""The search: cases in worker processes until the time is up; the first finding is shrunk and printed."""

import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from vopr.cases import Case, case_of, drawn, kind_of, outcome
from vopr.shrink import found, shortest

#: Files of findings.
KEPT = Path(__file__).resolve().parents[2] / "target" / "vopr"
#: Longest time of one case, in seconds; a machine with other work takes some for ten seconds.
LONGEST_S = 200


class Limits(NamedTuple):
    """Bounds of a search: seconds, or a number of cases if not 0, and the seconds of shrinking."""

    time_s: float
    cases: int = 0
    shrinking_s: float = 60.0


def search(seed: int, limits: Limits, jobs: int, kinds: Collection[str]) -> int:
    """Run cases for a time, or so many; print how they ended. Exit code 1 for a finding, which is printed."""
    print(f"seed {seed}", flush=True)
    started_s, number, ended = time.monotonic(), 0, Counter[str]()
    said_s = started_s
    running: dict[Future[tuple[str, str]], tuple[Case, float]] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while True:
            now_s = time.monotonic()
            while len(running) < 2 * jobs and (
                number < limits.cases if limits.cases else now_s < started_s + limits.time_s
            ):
                case, number = case_of(seed, number, kinds), number + 1
                running[pool.submit(outcome, case)] = case, now_s
            if not running:
                break
            done, _ = wait(running, 1.0, FIRST_COMPLETED)
            for future in done:
                case, _ = running.pop(future)
                try:
                    how, text = future.result()
                except BrokenProcessPool:
                    return _died([case, *(own for own, _ in running.values())])
                if text:
                    pool.shutdown(wait=False, cancel_futures=True)
                    print(f"after {ended.total()} cases, {time.monotonic() - started_s:.0f} s:", flush=True)
                    if not explain(case, limits.shrinking_s):
                        print(f"found only behind other cases of its process:\n{text}", flush=True)
                    return 1
                ended[f"{case.kind}: {how}"] += 1
            if stuck := [case for case, since_s in running.values() if now_s - since_s > 2 * LONGEST_S]:
                pool.kill_workers() if hasattr(pool, "kill_workers") else pool.shutdown(False)
                return _died(stuck)
            if now_s - said_s > 60:
                said_s = now_s
                print(f"{now_s - started_s:.0f} s, {ended.total()} cases, nothing found", flush=True)
    print(*(f"{count:>6} {how}" for how, count in sorted(ended.items())), sep="\n")
    print(f"{ended.total()} cases of seed {seed} in {time.monotonic() - started_s:.0f} s: nothing found")
    return 0


def explain(case: Case, limit_s: float = 60.0) -> int:
    """Run a case, and shrink and print its finding; return 1 if it has one."""
    kind, full = kind_of(case), drawn(case)
    finding = found(kind, full)
    if finding is None:
        print(f"{case}: nothing found")
        return 0
    print(
        f"{finding}\nagain: make vopr ARGS='--case {case}'\n{kind.shown(full, KEPT / str(case))}", flush=True
    )
    short, finding = shortest(kind, full, finding, limit_s)
    if short != full:
        print(f"the shortest found: {finding}\n{kind.shown(short, KEPT / f'{case}-short')}", flush=True)
    return 1


def _died(cases: list[Case]) -> int:
    """Print which of some cases ends the process that runs it, or takes too long."""
    for case in cases:
        command = [sys.executable, str(Path(__file__).parent), "--case", str(case)]
        try:
            code = subprocess.run(command, timeout=LONGEST_S).returncode
        except subprocess.TimeoutExpired:
            code = f"more than {LONGEST_S} s"
        if code:
            print(f"the process ended with {code}\nagain: make vopr ARGS='--case {case}'", flush=True)
            print(kind_of(case).shown(drawn(case), KEPT / str(case)), flush=True)
            return 1
    print(
        f"{len(cases)} cases took too long or ended their process, alone they end: a busy machine?",
        flush=True,
    )
    return 1
