"""A run in memory, written as a directory that every verb takes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from kvcache_sim.api.unsaved import UnsavedRun
from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.run_directory import RunDirectory, open_run_directory
from kvcache_sim.report.finished import RunSource
from kvcache_sim.scenario.execute import Execution, store
from kvcache_sim.workload.toolbox.write import mooncake_lines
from kvcache_sim.workload.trace import Trace

_REQUESTS = "trace.jsonl"


def save_run(source: RunSource, target: Path, force: bool) -> Path:
    """Write a run that is in memory; raises UsageError for one that has a directory already."""
    if not isinstance(source, UnsavedRun):
        raise UsageError("is a directory already", where=str(source.path), hint="copy it")
    with open_run_directory(target, force) as directory:
        execution = source.execution
        if source.given is not None:
            execution = _with_requests(execution, source.given, directory)
        store(execution, directory, ["kvcache_sim.simulate"], source.summary["wall"])
    return target


def _with_requests(execution: Execution, given: Trace, directory: RunDirectory) -> Execution:
    """Write the requests beside the run, and return the run as one of that file."""
    text = "".join(mooncake_lines(given)).encode()
    directory.write(_REQUESTS, text)
    section = {"path": _REQUESTS, "format": "mooncake", "block_size": given.block_size, "time_order": "keep"}
    scenario = replace(execution.scenario, resolved={**execution.scenario.resolved, "trace": section})
    trace = replace(execution.trace, sha256=hashlib.sha256(text).hexdigest(), source=_REQUESTS)
    return replace(execution, scenario=scenario, trace=trace)
