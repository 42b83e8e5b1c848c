"""The comparison itself: every run against the first, with the settings that differ between them.

Intervals are from stretches of time (``stretches``), of replications by resampling them, and show the
differences that chance explains. Paired runs are cut at the same requests, so common effects cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kvcache_sim.base.rng import stream
from kvcache_sim.metrics.certainty import CERTAIN, intervals_text, source_line, value_text
from kvcache_sim.metrics.names import flatten
from kvcache_sim.metrics.resampling import interval
from kvcache_sim.metrics.saturation import queue_grows, saturation_sentence
from kvcache_sim.report.compare.model_ratio import ModelRatios, model_ratios
from kvcache_sim.report.compare.samples import (
    Column,
    Samples,
    Statistic,
    common_requests,
    samples_of,
    statistics_of,
)
from kvcache_sim.report.compare.stretches import change_interval, stretch_values
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.unserved import unserved_text


class Certainties(NamedTuple):
    """The certainty of two runs in words."""

    #: The source of the step times, once if both runs share it.
    sources: tuple[str, ...]
    #: Metric → the figure of both runs with their intervals, of figures that have intervals.
    values: dict[str, str]


def certainties(first: FinishedRun, second: FinishedRun) -> Certainties:
    """Return the sources and figures of two runs."""
    lines = [source_line(run.summary) for run in (first, second)]
    said = [f"{line}." for line in lines[:1] if line]
    if lines[0] != lines[1]:
        said = [
            f"{run.label}: {line or 'no time passes'}."
            for run, line in zip((first, second), lines, strict=True)
        ]
    values = {}
    for key, (metric, words) in CERTAIN.items():
        bands = [intervals_text(run.summary, key) for run in (first, second)]
        if all(bands):
            intervals = [
                f"{run.label} {value_text(run.summary, key)} ({band})"
                for run, band in zip((first, second), bands, strict=True)
            ]
            values[metric] = f"{words}: {', '.join(intervals)}."
    return Certainties(tuple(said), values)


_LABELS = ("name",)


def differing_settings(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, tuple[object, ...]]:
    """Return dotted setting → its value in each scenario (None: not set), for those that are not all equal.

    Labels are left out. Lists compare whole. A channel that is not everywhere is one row, of its bandwidth.
    """
    flat = [flatten(scenario) for scenario in scenarios]
    names = dict.fromkeys(name for scenario in flat for name in scenario if name not in _LABELS)
    table = {name: tuple(scenario.get(name) for scenario in flat) for name in names}
    differing = {name: values for name, values in table.items() if any(v != values[0] for v in values)}
    return {name: values for name, values in differing.items() if not _of_lone_channel(name, scenarios)}


def _of_lone_channel(name: str, scenarios: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a setting is of a channel that some scenario lacks, and is not its bandwidth."""
    section, _, rest = name.partition(".")
    channel, _, key = rest.partition(".")
    lacking = any(channel not in (scenario.get("channels") or {}) for scenario in scenarios)
    return section == "channels" and lacking and key != "bandwidth"


#: Relative difference of arrival rates below which two loads are the same.
_SAME_RATE = 0.001


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of one value a replication, by resampling replications."""
    array = np.asarray(values)
    generator = stream(0, "compare.replications")
    rows = generator.integers(0, len(array), size=(2000, len(array)))
    return interval(array[rows].mean(axis=1))


#: Smallest difference of interest unless it is set.
LEAST_DIFFERENCE = 0.02


@dataclass(frozen=True, slots=True)
class Difference:
    """One number in a run and in the baseline.

    ``change`` is run ÷ baseline for times, run − baseline for shares, with its interval; None where the
    baseline is zero. ``least`` is the smallest difference of interest, as a share of the lesser value.
    """

    statistic: Statistic
    baseline: float
    value: float
    change: float | None
    low: float
    high: float
    least: float = LEAST_DIFFERENCE

    @property
    def neutral(self) -> float:
        """Return the change that means no difference."""
        return 0.0 if self.statistic.is_share else 1.0

    @property
    def is_clear(self) -> bool:
        """Return True if the interval excludes no difference, and the difference is one of interest."""
        return self.change is not None and not self.low <= self.neutral <= self.high and not self.is_small

    @property
    def is_negligible(self) -> bool:
        """Return True if all of the interval is too small to be of interest."""
        if self.statistic.is_share:
            most = self.least * min(self.baseline, self.value)
            return self.is_small and max(-self.low, self.high) <= most
        return self.is_small and (1 + self.least) * self.low >= 1 and self.high <= 1 + self.least

    @property
    def is_small(self) -> bool:
        """Return True if the difference is too small to be of interest."""
        less, more = sorted((self.baseline, self.value))
        return more <= less * (1 + self.least)


class States(NamedTuple):
    """The sentences of two runs' saturation, empty for runs that are not saturated."""

    baseline: str
    run: str
    #: True of each run whose waits grow with the length of its trace.
    growing: tuple[bool, bool]
    #: True if the same requests arrived at the same rate, or waited for others in both runs.
    same_load: bool
    #: True if the runs may be ranked by latency: no waits grow with the trace, or the caller asked for it.
    rank_latency: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run, or the replications of one scenario, against a baseline."""

    baseline: str
    label: str
    differences: tuple[Difference, ...]
    #: dotted setting → (in the baseline, in the run).
    settings: dict[str, tuple[object, ...]]
    #: Requests compared, and how they were paired: ``request``, ``replication`` or ``none``.
    requests: int
    paired_by: str
    replications: int
    #: True if both runs have the same digest of results.
    identical: bool
    states: States
    model: ModelRatios
    #: The lines of the step times' sources, and of the values with their intervals by metric.
    certainty: Certainties
    #: The requests that the baseline and the run did not serve, in words; empty if none.
    unserved: tuple[str, str] = ("", "")

    @property
    def saturated(self) -> tuple[str, str]:
        """Return the sentence of the baseline's saturation and that of the run's; empty if not saturated."""
        return self.states.baseline, self.states.run

    def ranks(self, statistic: Statistic) -> bool:
        """Return True if a figure may rank the runs: latencies of saturated runs do not unless asked."""
        return self.states.rank_latency or not statistic.is_latency


def compare(
    baseline: Sequence[FinishedRun],
    other: Sequence[FinishedRun],
    rank_saturated: bool = False,
    least: float = LEAST_DIFFERENCE,
) -> Comparison:
    """Compare the replications of two sides: replication r of both used the same seed.

    One replication a side: intervals from stretches of time, paired by request where the trace is the same.
    Several: from resampled replications. ``least`` is the smallest difference of interest.
    """
    first, second = baseline[0], other[0]
    digests = [run.manifest.get("digest", {}).get("results") for run in (first, second)]
    settings = differing_settings([first.scenario, second.scenario])
    if len(baseline) > 1:
        differences, requests = _by_replication(baseline, other), len(first.finished["request"])
        paired_by = "replication"
    else:
        differences, requests, paired_by = _by_request(first, second)
    differences = tuple(replace(one, least=least) for one in differences)
    return Comparison(
        first.label,
        second.label,
        differences,
        settings,
        requests,
        paired_by,
        len(baseline),
        digests[0] is not None and digests[0] == digests[1],
        _states(baseline, other, paired_by, rank_saturated),
        model_ratios(first, second),
        certainties(first, second),
        (unserved_text(first.summary), unserved_text(second.summary)),
    )


def _states(
    baseline: Sequence[FinishedRun], other: Sequence[FinishedRun], paired_by: str, rank_saturated: bool
) -> States:
    """Return the states of two sides; a side is saturated if any of its replications is."""
    sides = (baseline, other)
    said = [next(filter(None, (saturation_sentence(run.summary) for run in side)), "") for side in sides]
    growing = (
        any(queue_grows(flatten(run.summary)) for run in baseline),
        any(queue_grows(flatten(run.summary)) for run in other),
    )
    rates = [run.summary.get("saturation", {}).get("arrived_per_s") for run in (baseline[0], other[0])]
    same_rate = rates[0] == rates[1] or (None not in rates and abs(rates[1] / rates[0] - 1) < _SAME_RATE)
    same_load = paired_by != "none" and same_rate
    return States(said[0], said[1], growing, same_load, rank_saturated or not any(growing))


def _by_request(first: FinishedRun, second: FinishedRun) -> tuple[tuple[Difference, ...], int, str]:
    common = common_requests(first, second)
    a, b = samples_of(first, common), samples_of(second, common)
    if not len(a) or not len(b):
        return (), 0, "none"
    statistics = statistics_of(a, b)
    parts_a, parts_b = stretch_values(a, statistics), stretch_values(b, statistics)
    differences = []
    for column, statistic in enumerate(statistics):
        base, value = statistic.value(a), statistic.value(b)
        parts = parts_a[..., column], parts_b[..., column]
        low, high = change_interval(statistic, (base, value), parts, common is not None)
        differences.append(Difference(statistic, base, value, _change(statistic, base, value), low, high))
    return tuple(differences), len(b), "none" if common is None else "request"


class _Pair(NamedTuple):
    """The samples of a replication of the baseline, and of the same one of the other runs."""

    base: Samples
    other: Samples


def _by_replication(baseline: Sequence[FinishedRun], other: Sequence[FinishedRun]) -> tuple[Difference, ...]:
    pairs = [_Pair(samples_of(a), samples_of(b)) for a, b in zip(baseline, other, strict=True)]
    statistics = statistics_of(*(samples for pair in pairs for samples in pair))
    return tuple(_over_pairs(statistic, pairs) for statistic in statistics)


def _over_pairs(statistic: Statistic, pairs: Sequence[_Pair]) -> Difference:
    values = np.array([[statistic.value(pair.base), statistic.value(pair.other)] for pair in pairs])
    changes = _changes(statistic, values[:, 0], values[:, 1])
    base, value = (float(mean) for mean in values.mean(axis=0))
    low, high = mean_interval(changes.tolist())
    change = None if (values[:, 0] == 0).any() and not statistic.is_share else float(changes.mean())
    return Difference(statistic, base, value, change, low, high)


def _changes(
    statistic: Statistic,
    base: Column,
    value: Column,
) -> Column:
    if statistic.is_share:
        return value - base
    return np.divide(value, base, out=np.ones_like(value), where=base != 0)


def _change(statistic: Statistic, base: float, value: float) -> float | None:
    if statistic.is_share:
        return value - base
    return value / base if base else None
