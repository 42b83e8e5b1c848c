"""The requests of a scenario: a trace read from a file, or a workload generated from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.metrics.request_rule import PRIORITY
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.objectives import trace_fields_of
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.section import converted
from kvcache_sim.scenario.trace_section import TraceChanges, TraceSection
from kvcache_sim.serving.queue import PROGRAM_FCFS
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.context import context_tokens
from kvcache_sim.simulation.windows import can_stream
from kvcache_sim.workload import readers
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import NO_SESSION, Lanes, Trace


def refuse_beyond_spec(scenario: Scenario) -> None:
    """Raise UsageError for a setting that ``spec/`` does not cover."""
    from kvcache_sim.simulation.spec_keys import uncovered

    for path, refusal in uncovered(scenario.resolved):
        raise replace(refusal, where=scenario.tree.location(path) or "--engine spec")


def open_requests(scenario: Scenario, options: RunOptions) -> Trace | TraceStream:
    """Return the requests of a scenario like ``read_requests``, or as a stream if the run allows it.

    A long trace file is then read during the run (see ``can_stream`` and ``open_trace``).
    """
    if options.engine != "native":
        refuse_beyond_spec(scenario)
    section, slides = scenario.model.trace, scenario.model.replica.on_overflow == "slide"
    outputs = scenario.model.workload.get("output_tokens")
    changed = outputs is not None or "concurrency" in scenario.model.workload
    changed = changed or scenario.model.router.affinity is not None
    changed = changed or slides or scenario.model.measure is not None
    changed = changed or scenario.model.session_view.max_tokens is not None
    changed = changed or scenario.model.replica.queue_order == PROGRAM_FCFS
    changed = changed or bool(trace_fields_of(scenario.model))
    changed = changed or scenario.model.retention is not None
    changed = changed or scenario.model.tenants is not None
    changed = changed or scenario.model.models is not None or scenario.model.adapters is not None
    changed = changed or (section is not None and (section.speed != 1 or section.sessions is not None))
    changed = changed or (section is not None and bool(section.extra_keys))
    changed = changed or (section is not None and section.synthesise_prefixes is not None)
    if section is None or changed or not can_stream(scenario.settings, options):
        return read_requests(scenario)
    found = readers.open_trace(section.path, section.read_settings())
    if isinstance(found, TraceStream):
        _check_block_size(scenario, found.first)
        is_coarser = found.first.block_size < scenario.model.cache.block_size
        return read_requests(scenario) if is_coarser else found
    return prepared(scenario, found)


def read_requests(scenario: Scenario) -> Trace:
    """Return the trace that a scenario's ``trace`` or ``workload`` section describes.

    Raises UsageError if there is neither or the cache's block size does not divide the trace's, TraceError
    and InputOutputError as the reader does. Adds a warning if requests cannot fit a GPU.
    """
    model = scenario.model
    if model.trace is not None:
        trace = _from_file(model.trace, keep_unknown=keeps_unknown(scenario))
    elif "kind" in model.workload:
        trace = _generated(model.workload, model.seed)
    else:
        raise UsageError(
            "no requests", where=scenario.tree.source, hint="name a trace (trace.path) or a workload.kind"
        )
    return prepared(scenario, trace)


def prepared(scenario: Scenario, trace: Trace) -> Trace:
    """Return a trace with the scenario's changes: answer lengths, prompts cut to the context window.

    Raises and warns as ``read_requests``.
    """
    model = scenario.model
    affinity = model.router.affinity
    if affinity is not None and affinity.mode == "sibling-group":
        from kvcache_sim.workload.sessions import parents

        trace = replace(trace, parent=parents(trace))
    trace = trace if "kind" in model.workload else _as_load(model, trace)
    if trace.block_size < model.cache.block_size:
        trace = _in_cache_blocks(trace, model.cache.block_size)
    output_tokens = None if "kind" in model.workload else model.workload.get("output_tokens")
    if output_tokens is not None:
        trace = replace(trace, output_tokens=np.full(len(trace), output_tokens, np.int64))
    if model.models is not None:
        from kvcache_sim.workload.members import with_models

        trace = with_models(trace, model.models.field, list(model.models.of))
    context = context_tokens(scenario.settings, trace)
    window = context if model.replica.on_overflow == "slide" else None
    for most in (model.session_view.max_tokens, window):
        if most is not None:
            from kvcache_sim.workload.context_window import slide

            trace = slide(trace, most)
    if model.retention is not None:
        from kvcache_sim.workload.members import HintRules, with_retention

        hints = model.retention
        trace = with_retention(trace, HintRules(hints.field, hints.tool, dict(hints.ttl_s)))
    if model.tenants is not None:
        from kvcache_sim.workload.members import with_tenants

        trace = with_tenants(trace, model.tenants.field, model.tenants.isolate)
    if model.adapters is not None:
        from kvcache_sim.workload.members import with_adapters

        trace = with_adapters(trace, model.adapters.field)
    if model.replica.queue_order == PROGRAM_FCFS:
        trace = _by_program(trace)
    _check_block_size(scenario, trace)
    remarks = (*_too_long(scenario, trace), *_no_sessions(scenario, trace))
    return replace(trace, warnings=(*trace.warnings, *remarks))


def _by_program(trace: Trace) -> Trace:
    """Return a trace whose priorities are the starts of its jobs; unchanged if no request waits."""
    from kvcache_sim.workload.sessions import job_starts_ns, jobs_of

    jobs = jobs_of(trace)
    starts_ns = trace.arrival_ns if jobs is None else job_starts_ns(trace, jobs)
    return replace(trace, priority=np.unique(starts_ns, return_inverse=True)[1].astype(np.int64))


def _in_cache_blocks(trace: Trace, block_size: int) -> Trace:
    """Return a trace whose ids name blocks of the cache, where those are a multiple of the trace's."""
    from kvcache_sim.workload.coarser_blocks import in_coarser_blocks

    found = in_coarser_blocks(trace, block_size)
    if found is trace or not len(trace.block_ids):
        return found
    said = f"{block_size // trace.block_size} ids of {trace.block_size} tokens are one block of the cache"
    return replace(found, warnings=(*trace.warnings, f"{trace.source}: {said}"))


def _check_block_size(scenario: Scenario, trace: Trace) -> None:
    block_size = scenario.model.cache.block_size
    if trace.block_size % block_size and block_size % trace.block_size:
        raise UsageError(
            "cache.block_size does not divide the trace's block",
            where=scenario.tree.location(("cache", "block_size")),
            got=str(block_size),
            expected=f"a divisor or a multiple of {trace.block_size}",
        )


def keeps_unknown(scenario: Scenario) -> bool:
    """Return True if a scenario uses members of the trace's rows that have no column."""
    model = scenario.model
    sections = (model.tenants, model.retention, model.models, model.adapters)
    asks = any(section is not None for section in sections)
    return asks or bool(trace_fields_of(model) - {PRIORITY})


def _from_file(section: TraceSection, keep_unknown: bool) -> Trace:
    return readers.read_trace(section.path, settings=section.read_settings(keep_unknown))


def _as_load(model: ScenarioModel, trace: Trace) -> Trace:
    """Return the requests of a trace at the speed and in the sessions that a scenario asks for."""
    section = model.trace
    if section is not None and (section.sessions is not None or section.speed != 1):
        from kvcache_sim.workload.toolbox import transforms

        if section.sessions is not None:
            trace = transforms.sessions(trace, section.sessions, model.seed)
        if section.speed != 1:
            trace = transforms.scale(trace, Fraction(str(section.speed)))
    changes = converted(TraceChanges, model.workload)
    if changes.concurrency is None:
        return trace
    from kvcache_sim.workload.lanes import Entry, in_lanes

    lanes = Lanes(changes.concurrency, changes.idle_cap, changes.tree_idle_cap)
    entry = None
    if changes.enter is not None:
        low, high = changes.enter
        entry = Entry(low, high, model.seed, changes.primers, changes.warmup_requests, changes.warmup)
    return in_lanes(trace, lanes, changes.plays, entry)


def _generated(section: Mapping[str, Any], seed: int) -> Trace:
    from kvcache_sim.workload.generate import build

    return build(section["kind"], {key: value for key, value in section.items() if key != "kind"}, seed)


def _no_sessions(scenario: Scenario, trace: Trace) -> tuple[str, ...]:
    """Return a warning if the router groups by session and the requests have none."""
    router = scenario.model.router
    if bool(np.any(trace.session != NO_SESSION)):
        return ()
    if router.affinity is not None:
        return ("router.affinity: the requests have no sessions, so none is bound",)
    if router.policy == "session-affinity":
        return ("router.policy session-affinity: the requests have no sessions, so it is least-loaded here",)
    return ()


def _too_long(scenario: Scenario, trace: Trace) -> tuple[str, ...]:
    """Return a warning if prompts within the context do not fit some machine's GPU: they will be rejected."""
    sizes = [machine.tiers[0].capacity_blocks for machine in scenario.settings.machines]
    bounded = [size for size in sizes if size is not None]
    if not bounded or not len(trace):
        return ()
    smallest = min(bounded)
    context = context_tokens(scenario.settings, trace)
    prompts = trace.input_tokens if context is None else trace.input_tokens[trace.input_tokens < context]
    needed = -(-prompts // scenario.model.cache.block_size)
    count = int(np.count_nonzero(needed > smallest))
    if not count:
        return ()
    return (
        f"{count:,} of {len(trace):,} requests need more blocks than the smallest {TIERS[COMPUTE]} has "
        f"({smallest:,}): they are rejected there; the longest needs {int(needed.max()):,}",
    )
