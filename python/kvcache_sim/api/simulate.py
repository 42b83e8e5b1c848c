"""One simulation from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcache_sim.api.calls import public
from kvcache_sim.api.run import Run
from kvcache_sim.api.scenario import Scenario, ScenarioLike, as_scenario
from kvcache_sim.api.traces import make_trace
from kvcache_sim.api.unsaved import UnsavedRun
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.idle import Idle
from kvcache_sim.scenario.requests import prepared, read_requests
from kvcache_sim.scenario.section import keys
from kvcache_sim.scenario.trace_section import TraceChanges
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.options import DEFAULT_OPTIONS
from kvcache_sim.workload.trace import Trace


@public
def simulate(
    trace_or_workload: Any = None,
    /,
    scenario: ScenarioLike = None,
    *,
    options: RunOptions = DEFAULT_OPTIONS,
    sensitivity: bool = False,
    idle: Idle | None = None,
    **settings: Any,
) -> Run:
    """Simulate requests over the tiers of a scenario; nothing is written.

    Args:
        trace_or_workload: A ``Trace``, the path of a trace file, a workload (``{"kind": "agentic", …}``) or
            columns as ``make_trace`` takes them. None: the requests of the scenario.
        scenario: A ``Scenario``, the path of its file, a mapping of settings, or None (all defaults).
        options: Options of the run that change no result.
        sensitivity: True to add the intervals of the main figures to the summary (``certainty.*``), by two
            replays; costs at most 2.2 times the run.
        idle: ``"warn"`` leaves out a setting that nothing uses, with a warning that the run keeps, instead of
            raising: for loops over variants. None: as the scenario does.
        settings: Keys that replace those of the scenario, nested or dotted: ``tiers={"cpu": "512GiB"}``, a
            policy by its name or as a class: ``router=MyRouter``.

    Returns:
        The finished run.

    Raises:
        UsageError: A setting is wrong; the message is that of ``kvsim simulate``. ``sensitivity`` of a run
            in which no time passes.
        TraceError: The trace has data that cannot be trusted.
        InputOutputError: A file cannot be read.
    """
    asked, given = resolve_requests(trace_or_workload, as_scenario(scenario, idle), settings)
    checked = asked.checked
    trace = read_requests(checked) if given is None else prepared(checked, given)
    if not sensitivity:
        return Run(UnsavedRun(execute(checked, trace, options), given), trace=trace)
    from kvcache_sim.report.intervals.certainty import refuse_instant, with_certainty

    refuse_instant(checked, "sensitivity")
    done, _, missing = with_certainty(execute(checked, trace, replace(options, times=True)), trace)
    if missing:
        done = replace(done, run=replace(done.run, warnings=(*done.run.warnings, missing)))
    return Run(UnsavedRun(done, given), trace=trace)


def resolve_requests(
    requests: Any, scenario: Scenario, settings: Mapping[str, Any]
) -> tuple[Scenario, Trace | None]:
    """Return the scenario with its settings, and the requests if they were given in Python."""
    if requests is None:
        return scenario.with_(**settings), None
    if isinstance(requests, (str, os.PathLike)):
        path = os.fspath(requests)
        located = path if path == "-" else os.path.abspath(path)
        return scenario.for_trace(located, settings), None
    if isinstance(requests, Mapping) and "kind" in requests:
        return scenario.with_(**{"trace": None, "workload": dict(requests), **settings}), None
    trace = requests if isinstance(requests, Trace) else make_trace(requests)
    for key in ("trace", "workload"):
        inside, changes = settings.get(key), keys(TraceChanges).keys()
        if inside is not None and not (isinstance(inside, Mapping) and set(inside) <= changes):
            raise UsageError("requests are given already", where=key, got=type(requests).__name__)
    return scenario.for_given_requests(trace.block_size, settings), trace
