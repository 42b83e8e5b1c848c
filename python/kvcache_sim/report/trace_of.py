"""The trace a finished run was made from, found again."""

from __future__ import annotations

from kvcache_sim.errors import KvsimError
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.scenario.load import scenario_from_text


def find_trace(run: FinishedRun) -> str:
    """Read the run's requests again, from its file or its generator, into ``run.trace``.

    Returns "" or why it is not there: the file is gone, or is not the one that ran (by SHA-256). Cost: what
    reading the trace costs.
    """
    from kvcache_sim.scenario.requests import read_requests

    if run.trace is not None:
        return ""
    source = str(run.directory / "scenario.yaml")
    try:
        trace = read_requests(scenario_from_text(run.scenario_text, source, run.directory))
    except KvsimError as error:
        return str(error)
    before = run.manifest.get("trace", {}).get("sha256", "")
    if before != trace.sha256 or len(trace) != len(run.requests["request"]):
        return f"{trace.source or 'the trace'} has changed since the run"
    run.trace = trace
    return ""
