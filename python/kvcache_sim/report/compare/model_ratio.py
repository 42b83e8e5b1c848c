"""Ratios of two runs' figures at the same bound of the assumptions that both share: their errors cancel."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvcache_sim.metrics.certainty import CERTAIN
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.finished import FinishedRun


class ModelRatios(NamedTuple):
    """The interval of the model of each ratio, by metric, or the reason for which there is none."""

    intervals: dict[str, tuple[float, float]]
    reason: str


def model_ratios(first: FinishedRun, second: FinishedRun) -> ModelRatios:
    """Return the intervals of second ÷ first over the model's errors, from what the two runs stored.

    Runs with the same step-time source share its error: the ratio is taken at the slow bound of both and at
    the fast bound of both. Otherwise the errors are independent: the ratio is taken at opposite bounds.
    """
    sources = [run.summary.get("step_times") for run in (first, second)]
    if sources[0] is None and sources[1] is None:
        return ModelRatios({}, "")
    if any(run.summary.get("step_times") and not _bounds(run) for run in (first, second)):
        return ModelRatios({}, _not_computed(first, second))
    shared = sources[0] == sources[1]
    found = {}
    for key, (metric, _) in CERTAIN.items():
        ends = [_bounds(run).get(key, {}) for run in (first, second)]
        values = [metric_value(run.summary, metric) for run in (first, second)]
        ratios = _ratios(ends, values, shared)
        if ratios:
            found[metric] = (min(ratios), max(ratios))
    return ModelRatios(found, "" if shared else "the step times differ: errors are not shared")


def _ratios(ends: list[Mapping[str, Any]], simulated: list[float | None], shared: bool) -> list[float]:
    """Return the ratios of the runs themselves and at each pair of bounds; none if a value is missing."""
    pairs = (("slow", "slow"), ("fast", "fast")) if shared else (("slow", "fast"), ("fast", "slow"))
    values = [(simulated[0], simulated[1]), *((ends[0].get(a), ends[1].get(b)) for a, b in pairs)]
    ratios = [b / a for a, b in values if a and b is not None]
    return ratios if len(ratios) == len(values) else []


def _bounds(run: FinishedRun) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.summary.get("certainty") or {}
    return found


def _not_computed(*runs: FinishedRun) -> str:
    """Return the command that computes the bounds of runs which were not simulated for the comparison."""
    if any(run.manifest.get("argv", [])[1:2] == ["compare"] for run in runs):
        return "not computed"
    files = " ".join(shlex.quote(str(run.directory / "scenario.yaml")) for run in runs)
    return f"not computed: 'kvsim compare {files}' simulates both again with it"
