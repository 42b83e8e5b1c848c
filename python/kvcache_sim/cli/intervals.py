"""The intervals of ``kvsim simulate``: when they are computed, and the command that computes them later."""

from __future__ import annotations

import sys
import time
from enum import Enum

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.notices import warn
from kvcache_sim.metrics.run import Observer
from kvcache_sim.scenario.execute import Execution
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.requests import open_requests, read_requests
from kvcache_sim.scenario.step_time_source import summarize_step_times
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace


class Wanted(Enum):
    """The choice of a command line: always, for runs of at most ``MOST_CPU_S``, or never."""

    ALWAYS = 2
    SHORT_RUNS = 1
    NEVER = 0


def wanted(scenario: Scenario, asked: bool, refused: bool, for_people: bool) -> Wanted:
    """Return the choice of a command line; ``for_people``: text, to a terminal.

    Raises UsageError for both options at once, and for intervals of a run in which no time passes.
    """
    if asked and refused:
        raise UsageError("one at a time", where="--sensitivity, --no-sensitivity")
    if asked:
        from kvcache_sim.report.intervals.certainty import refuse_instant

        refuse_instant(scenario, "--sensitivity")
        return Wanted.ALWAYS
    unasked = for_people and not refused and sys.stdout is not None and sys.stdout.isatty()
    return Wanted.SHORT_RUNS if unasked and summarize_step_times(scenario) else Wanted.NEVER


def opened_requests(scenario: Scenario, options: RunOptions, choice: Wanted) -> Trace | TraceStream:
    """Return the requests of a run; those of standard input are kept where replays need them again."""
    again = choice is Wanted.ALWAYS and _is_stdin(scenario)
    return read_requests(scenario) if again else open_requests(scenario, options)


def _is_stdin(scenario: Scenario) -> bool:
    return scenario.model.trace is not None and scenario.model.trace.path == "-"


def with_intervals(
    done: Execution, requests: Trace | TraceStream, choice: Wanted, began_s: float, observer: Observer | None
) -> tuple[Execution, float]:
    """Return a run with its intervals, if they are wanted, and the CPU seconds of its replays.

    ``began_s`` is the process time at which the run began.
    """
    if choice is Wanted.NEVER or not done.options.times:
        return done, 0.0
    from kvcache_sim.report.intervals.certainty import MOST_CPU_S, with_certainty

    trace = requests if isinstance(requests, Trace) else None
    if choice is Wanted.SHORT_RUNS:
        is_lost = trace is None and _is_stdin(done.scenario)
        if is_lost or time.process_time() - began_s > MOST_CPU_S:
            return done, 0.0
    phase = observer.phase if observer is not None else lambda _: None
    certain, took_s, missing = with_certainty(done, trace, phase)
    if missing:
        warn(missing)
    return certain, took_s
