"""The ``measure`` section as settings of the metrics package, and the summary of the measured requests."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.measure_settings import Edge, Measure
from kvcache_sim.metrics.measurement import MeasuredRequests
from kvcache_sim.metrics.parts import GROUP_ROWS, arrays_of
from kvcache_sim.metrics.request_totals import RequestTotals
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.saturation import servers_of, summarize_saturation
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.objectives import objectives_of
from kvcache_sim.simulation.context import context_tokens
from kvcache_sim.workload.trace import Trace
from kvcache_sim.workload.upper_bound import upper_bound_hit_tokens


def measured_requests(scenario: Scenario, trace: Trace | None) -> MeasuredRequests:
    """Return the consumer of a run's rows; UsageError if no request is left to measure.

    Without a trace (read during the run) all requests are measured.
    """
    section = scenario.model.measure
    measure = Measure()
    if section is not None:
        if section.cooldown is not None and section.cooldown.auto:
            location = scenario.tree.location(("measure", "cooldown"))
            raise UsageError("auto is for measure.warmup", location, hint="name a share, a time or a number")
        measure = Measure(section.warmup or Edge(), section.cooldown or Edge(), section.duration)
    objectives = objectives_of(scenario.model)
    if objectives is not None:
        objectives = objectives.with_fields_of(trace)
    reusable = None if trace is None else reusable_tokens(scenario, trace)
    block_size_tokens = scenario.settings.cache.block_size_tokens
    return MeasuredRequests(block_size_tokens, measure, trace, objectives, reusable, _contexts(scenario))


def _contexts(scenario: Scenario) -> NDArray[np.int64] | None:
    """Return by machine the most tokens of a prompt and its answer; None if no machine has a limit."""
    limits = [machine.replica.max_model_len for machine in scenario.settings.machines]
    if all(tokens is None for tokens in limits):
        return None
    return np.array([np.iinfo(np.int64).max if tokens is None else tokens for tokens in limits], np.int64)


def reusable_tokens(scenario: Scenario, trace: Trace) -> NDArray[np.int64]:
    """Return by request the prompt tokens that one unbounded cache of all machines would serve.

    A prompt that fills the context is rejected and writes no block. An answer that ends there changes
    nothing: its blocks reach as far as any prompt that is served.
    """
    cache, context = scenario.model.cache, context_tokens(scenario.settings, trace)
    rejected = None if context is None else trace.input_tokens >= context
    return upper_bound_hit_tokens(
        trace,
        cache.cache_output,
        cache.block_size,
        cache.full_hit == "skip-prefill",
        rejected,
    )


def measured_summary(
    scenario: Scenario, run: Run, requests: MeasuredRequests
) -> tuple[Run, dict[str, Any], RequestTotals]:
    """Return the run with its warnings, its summary, and the totals behind the summary.

    Rows that are still with the run are consumed first.
    """
    if not requests.began:
        columns = arrays_of(run.requests)
        rows = len(columns["status"]) if columns else 0  # a live run may have had no requests
        for start in range(0, rows, GROUP_ROWS):
            requests.add({name: column[start : start + GROUP_ROWS] for name, column in columns.items()})
    part, totals, said, remarks = requests.chosen(run)
    summary = summarize(part, scenario.model.cache.block_size, totals)
    latency, wait = summary["latency"], totals.wait()
    # On prefill machines the batch of decode machines limits nothing.
    has_pools = summary["handover"]["requests"] > 0
    servers = 1.0 if has_pools else servers_of(latency, wait["avg"], summary["throughput"]["requests_per_s"])
    summary |= summarize_saturation(
        wait, latency["ttft"], latency["itl"]["avg"], requests.arrivals(), servers
    )
    if said is not None:
        summary["measure"] = said
    return replace(run, warnings=(*run.warnings, *remarks)), summary, totals
