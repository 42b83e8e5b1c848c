"""Execution of a checked scenario: read its requests, simulate, summarize, and store the run."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from kvcache_sim import __version__, _core
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.base.values import Value
from kvcache_sim.metrics.columns import (
    MISS_COLUMNS,
    REQUEST_COLUMNS,
    SERIES_COLUMNS,
    SLO_COLUMNS,
    Column,
)
from kvcache_sim.metrics.measurement import MeasuredRequests
from kvcache_sim.metrics.miss_causes import keeps_all_blocks, keeps_no_blocks, miss_causes, summarize_misses
from kvcache_sim.metrics.optional_groups import summarize_context_window
from kvcache_sim.metrics.parts import arrays_of
from kvcache_sim.metrics.run import ColumnData, Observer, Run
from kvcache_sim.metrics.run_directory import RunDirectory
from kvcache_sim.metrics.run_tables import RunTables
from kvcache_sim.scenario.cost import with_cost
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.measure import measured_requests, measured_summary
from kvcache_sim.scenario.release_defaults import release_use
from kvcache_sim.scenario.requests import read_requests, refuse_beyond_spec
from kvcache_sim.scenario.resolved import config_hash, to_yaml
from kvcache_sim.scenario.step_time_source import summarize_step_times
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.readers.stream import NotAlone, TraceStream
from kvcache_sim.workload.trace import Trace


class Execution(Value):
    """A finished run with its scenario and trace."""

    scenario: Scenario
    #: The trace; for a stream its first window, with the digest and the warnings of the whole file.
    trace: Trace
    requests: int
    options: RunOptions
    run: Run
    #: ``summary.json`` without ``wall``.
    summary: dict[str, Any]
    #: Rows and events written during the run; ``run.events`` are the last events.
    tables: RunTables | None = None
    #: The measured requests of the run, with each request's times if ``options.times``.
    measured: MeasuredRequests | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings on the scenario, its trace and the run, one line each."""
        return (*self.scenario.notes, *self.trace.warnings, *self.run.warnings)


def execute(
    scenario: Scenario,
    requests: Trace | TraceStream,
    options: RunOptions,
    observer: Observer | None = None,
    directory: RunDirectory | None = None,
) -> Execution:
    """Simulate a scenario's requests; raises like ``simulate`` and like reading a stream.

    If a stream turns out to hold requests that depend on each other, its file is read whole and simulated.

    With a claimed directory, events and rows of requests are written there during the run; ``store`` writes
    the rest. Rows stay in memory if ``--causes`` or ``--prefixes`` need them again.
    """
    if options.engine != "native":
        refuse_beyond_spec(scenario)
    measured = measured_requests(scenario, requests if isinstance(requests, Trace) else None)
    if options.times:
        from kvcache_sim.metrics.request_intervals import RequestTimes

        measured.times = RequestTimes()
    settings = scenario.settings
    asks = settings.tenants is not None or settings.models is not None
    rows_leave = not (options.causes or options.prefixes or asks)
    tables = None if directory is None else RunTables(directory, measured if rows_leave else None)
    try:
        marked = replace(options, marks_ns=measured.marks_ns)
        run = simulate(scenario.settings, requests, observer, marked, tables)
    except NotAlone:
        path = "-" if scenario.model.trace is None else scenario.model.trace.path
        if path == "-":
            raise
        return execute(scenario, read_requests(scenario), options, observer, directory)
    trace = requests.whole() if isinstance(requests, TraceStream) else requests
    run, summary = summarized(scenario, trace, run, measured)
    if options.causes:
        if observer is not None:
            observer.phase("counting misses by cause")
        run, misses = _with_causes(scenario, trace, options, run)
        inside = measured.is_measured({name: run.requests[name] for name in ("request", "arrival_ns")})
        assert inside is not None, "the run has ended"
        summary = {**summary, "misses": summarize_misses(misses, inside, _eviction_policies(scenario))}
    return Execution(scenario, trace, requests_of(requests), options, run, summary, tables, measured)


def summarized(
    scenario: Scenario, trace: Trace, run: Run, measured: MeasuredRequests
) -> tuple[Run, dict[str, Any]]:
    """Return a finished run with its warnings, and its summary; ``measured`` received its rows."""
    run, summary, totals = measured_summary(scenario, run, measured)
    if run.requests:
        run = structs.replace(run, requests=dict(measured.judged(run.requests)))
    summary = {**with_cost(scenario, summary), **summarize_step_times(scenario)}
    if (release := release_use(scenario.model)) is not None:
        summary = {**summary, "release": structs.asdict(release)}
    contexts = {machine.replica.max_model_len for machine in scenario.settings.machines} - {None}
    if contexts:
        counts = totals.rejected_beyond_context, totals.answers_at_context
        window = summarize_context_window(*counts, trace, min(tokens for tokens in contexts if tokens))
        summary = {**summary, "context_window": window}
    if scenario.settings.tenants is not None:
        summary = {**summary, **_by_tenant(scenario, trace, run, measured)}
    if scenario.settings.models is not None:
        from kvcache_sim.metrics.optional_groups import summarize_models

        rows, names = _measured_rows(run, measured), scenario.settings.models.names
        summary = {**summary, **summarize_models(rows, trace.model, names)}
    if scenario.model.adapters is not None:
        from kvcache_sim.metrics.optional_groups import summarize_adapters

        summary = {**summary, **summarize_adapters(trace.adapter_names)}
    if run.schedule is not None:
        summary = {**summary, "schedule": run.schedule}
    return run, summary


def _by_tenant(scenario: Scenario, trace: Trace, run: Run, measured: MeasuredRequests) -> dict[str, Any]:
    """Return the group ``tenants`` of the summary."""
    from kvcache_sim.metrics.tenants import summarize_tenants

    tenants = scenario.settings.tenants
    assert tenants is not None, "a scenario without tenants has no such group"
    rows = _measured_rows(run, measured)
    weights = [tenants.of(name).weight for name in trace.tenant_names]
    return summarize_tenants(rows, trace.tenant, trace.tenant_names, weights, run.counters)


def _measured_rows(run: Run, measured: MeasuredRequests) -> dict[str, NDArray[Any]]:
    """Return the rows of a run that its summary is measured on."""
    inside = measured.is_measured({name: run.requests[name] for name in ("request", "arrival_ns")})
    return {name: column[inside] for name, column in arrays_of(run.requests).items()}


def _with_causes(
    scenario: Scenario, trace: Trace, options: RunOptions, run: Run
) -> tuple[Run, dict[str, NDArray[np.int64]]]:
    """Return the run with every missed token under its cause, and these columns."""
    cache = scenario.settings.cache
    left = sum(run.counters.get(f"evictions.{tier}", 0) for tier in TIERS) + run.counters["dropped_blocks"]
    kept = keeps_all_blocks(cache) and left > 0
    size, none = cache.block_size_tokens, keeps_no_blocks(cache)
    columns = miss_causes(run.requests, trace, size, kept, run.junctions, none)
    return structs.replace(run, requests={**run.requests, **columns}), columns


def _eviction_policies(scenario: Scenario) -> list[str]:
    tiers = [tier for machine in scenario.settings.machines for tier in machine.tiers]
    return sorted({f"{tier.policy} on {tier.name}" for tier in tiers})


def requests_of(requests: Trace | TraceStream) -> int:
    """Return the number of requests read so far."""
    return requests.requests if isinstance(requests, TraceStream) else len(requests)


def resolved_with_trace(scenario: Scenario, trace: Trace) -> dict[str, Any]:
    """Return the resolved scenario with the tokens of the trace's ids filled in."""
    resolved = dict(scenario.resolved)
    if "trace" in resolved:
        resolved["trace"] = {**resolved["trace"], "block_size": trace.id_tokens or trace.block_size}
    return resolved


def store(
    execution: Execution,
    directory: RunDirectory,
    argv: Sequence[str],
    used: dict[str, float | int] | None = None,
    replays_s: float = 0.0,
) -> dict[str, Any]:
    """Write a run into a claimed directory, commit it, and return its summary with ``wall``.

    ``used`` is the ``wall`` part, if it was measured before; ``replays_s`` are CPU seconds that it leaves
    out. Cost: one row and two events per request.
    """
    run = execution.run
    written = execution.tables or RunTables(directory)
    written.close(run)
    tables: list[tuple[str, Mapping[str, ColumnData], Mapping[str, Column]]] = [
        ("series", run.series, SERIES_COLUMNS)
    ]
    if written.requests is None:
        tables.append(("requests", run.requests, _request_columns(run.requests)))
    if run.prefixes is not None:
        from kvcache_sim.metrics.prefix_entries import PREFIX_COLUMNS

        tables.append(("prefixes", run.prefixes, PREFIX_COLUMNS))
    if run.junctions is not None:
        from kvcache_sim.metrics.cache_groups import JUNCTION_COLUMNS

        tables.append(("junctions", run.junctions, JUNCTION_COLUMNS))
    for name, columns, schema in tables:
        with directory.table(name, schema) as table:
            table.write_all(columns)
    resolved = resolved_with_trace(execution.scenario, execution.trace)
    directory.write("scenario.yaml", to_yaml(resolved))
    directory.write_json("run.json", manifest(execution, resolved, argv))
    summary = {**execution.summary, "wall": used or wall(replays_s)}
    directory.write_json("summary.json", summary)
    directory.commit()
    return summary


def _request_columns(requests: Mapping[str, ColumnData]) -> dict[str, Column]:
    further = {**SLO_COLUMNS, **MISS_COLUMNS}
    return {**REQUEST_COLUMNS, **{name: column for name, column in further.items() if name in requests}}


def wall(replays_s: float = 0.0) -> dict[str, float | int]:
    """Return the resources used by this process so far: CPU seconds without replays, peak memory in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "cpu_s": round(time.process_time() - replays_s, 3),
        "peak_rss_bytes": peak * (1 if _MAC else 1024),
    }


_MAC = sys.platform == "darwin"  # ru_maxrss is in bytes on macOS, in KiB on Linux


def _platform() -> str:
    """Return the value of ``platform.platform()`` on Linux, without its subprocess for the processor."""
    here = os.uname()
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    with_libc = "with-" + libc.replace(" ", "") if libc else ""
    return "-".join(filter(None, (here.sysname, here.release, here.machine, with_libc)))


def manifest(execution: Execution, resolved: dict[str, Any], argv: Sequence[str]) -> dict[str, Any]:
    """Return ``run.json``: versions, command line, seed, digests of inputs and outputs."""
    trace, run = execution.trace, execution.run
    capacity = execution.scenario.gpu_capacity
    return {
        "kvsim": __version__,
        "core": {"version": _core.__version__, "release": _core.__release__},
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "platform": _platform(),
        "argv": list(argv),
        "directory": str(Path.cwd()),
        "seed": execution.scenario.settings.seed,
        "random": "PCG64, a stream a name, seeded by SHA-256",
        "options": asdict(execution.options),
        "config_hash": config_hash(resolved, trace.sha256),
        "gpu_capacity": capacity.sentence if capacity is not None else None,
        "trace": {"source": trace.source, "sha256": trace.sha256, "requests": execution.requests},
        "digest": {"events": run.digest_events, "results": run.digest_results},
        "engine": run.engine._asdict(),
        "warnings": list(execution.warnings),
    }
