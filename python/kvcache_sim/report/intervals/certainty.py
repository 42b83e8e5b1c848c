"""The intervals of a run's main figures: over its requests, and of its model by two replays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.metrics.certainty import CERTAIN
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.metrics.request_intervals import request_intervals
from kvcache_sim.model.run_errors import Kind
from kvcache_sim.model.run_intervals import load_of_summary, model_interval, source_kind
from kvcache_sim.report.intervals.assumptions import assumptions
from kvcache_sim.report.intervals.replays import Replays
from kvcache_sim.report.intervals.together import applied, loading_share, together
from kvcache_sim.scenario.execute import Execution
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.machines import build_machines
from kvcache_sim.scenario.release_defaults import release_of
from kvcache_sim.scenario.step_time_source import summarize_step_times
from kvcache_sim.workload.trace import Trace

#: CPU seconds of a run up to which its intervals are computed unasked.
MOST_CPU_S = 20.0


def refuse_instant(scenario: Scenario, where: str) -> None:
    """Raise UsageError if no time passes in a scenario: it has no intervals."""
    if not summarize_step_times(scenario):
        raise UsageError("has no effect where no time passes (replica.instant)", where=where)


def with_certainty(
    done: Execution, trace: Trace | None, on_run: Callable[[str], None] = lambda _: None
) -> tuple[Execution, float, str]:
    """Return a run with ``certainty`` in its summary, the CPU seconds taken, and why a part is missing or "".

    ``done`` ran with ``options.times``; its digests stay. ``trace`` are its requests, None for a run that
    read them in windows: they are read again. ``on_run`` is called before each of the two replays. A replay
    that fails leaves the intervals of the model out. Cost: at most 2.2 times the run's.
    """
    began, missing = time.process_time(), ""
    ends: list[Mapping[str, Any]] = []
    found, loading = assumptions(done.scenario), loading_share(done.summary)
    if found:
        replays = Replays(done.scenario, done.trace.sha256, replace(done.options, times=False), trace)
        try:
            for bound, slow in (("slow", True), ("fast", False)):
                on_run(f"intervals: replay at the {bound} bound")
                settings = applied(done.scenario.settings, together(found, slow, loading))
                ends.append(replays.run(settings).summary)
        except KvsimError as error:
            ends, missing = [], f"no intervals of the model: {error}"
    summary = {**done.summary, "certainty": certainty(done, ends)}
    return replace(done, summary=summary), time.process_time() - began, missing


def certainty(done: Execution, ends: list[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return the group ``certainty`` of a run that kept its times, with the summaries at the bounds.

    The interval of the model combines the summaries at the bounds with the errors of whole runs of the same
    kinds of sources and load (``model_interval``); there is none without bounds.
    """
    kinds, load = _kinds(done.scenario), load_of_summary(done.summary)
    measured = done.measured
    by_requests = {}
    if measured is not None and measured.times is not None and done.summary["requests"]["finished"]:
        by_requests = request_intervals(measured.times.chosen(measured.is_inside))
    group = {}
    for figure, (metric, _) in CERTAIN.items():
        value = metric_value(done.summary, metric)
        if value is None:
            continue
        found = [metric_value(end, metric) for end in ends]
        slow, fast = found if len(found) == 2 else (None, None)
        at_bounds = [bound for bound in found if bound is not None]
        low, high = by_requests.get(figure, (None, None))
        model_low = model_high = None
        if at_bounds:
            edges = max(at_bounds), min(at_bounds)
            model_low, model_high = model_interval(figure, value, *edges, kinds, load)
        group[figure] = {
            "model_low": model_low,
            "model_high": model_high,
            "requests_low": None if low is None else min(low, value),
            "requests_high": None if high is None else max(high, value),
            "slow": slow,
            "fast": fast,
        }
    _hold_parts(done.summary, group)
    return group


def _hold_parts(summary: Mapping[str, Any], group: dict[str, dict[str, float | None]]) -> None:
    """Widen the interval of E2E to what TTFT alone, or TPOT alone, makes of it at its bounds."""
    whole, first, token = (group.get(name) for name in ("e2e_mean", "ttft_mean", "tpot_mean"))
    e2e, ttft, tpot = (metric_value(summary, f"latency.{name}.avg") for name in ("e2e", "ttft", "tpot"))
    if not (whole and first and token and e2e and ttft and tpot):
        return
    for key, widest in (("model_low", min), ("model_high", max)):
        bounds = whole[key], first[key], token[key]
        if None not in bounds:
            of_e2e, of_ttft, of_tpot = map(float, filter(None, bounds))
            decoding = (e2e - ttft) * (of_tpot / tpot - 1)
            whole[key] = widest(of_e2e, e2e + of_ttft - ttft, e2e + decoding)


def _kinds(scenario: Scenario) -> list[Kind | None]:
    """Return the kinds of the sources in use."""
    machines = build_machines(scenario.model, scenario.tree)
    named = {
        (machine.replica.step_time, release_of(machine.replica).engine)
        for machine in machines
        if not machine.replica.instant
    }
    return [source_kind(name, engine) for name, engine in sorted(named)]
