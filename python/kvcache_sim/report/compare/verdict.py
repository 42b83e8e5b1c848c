"""The verdict of a comparison: the better run, by how much, and if that is certain."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_sim.report.compare.comparison import Comparison, Difference
from kvcache_sim.report.compare.samples import RATE
from kvcache_sim.report.compare.text import no_comparison, ratio_interval, size

#: Figures that rank runs: the first that is certain, as p99 varies more than means.
_MEAN = "latency.ttft.avg"
_RANKING = ("slo.attainment", "latency.ttft.p99", _MEAN, "latency.tpot.avg")


class Verdict(NamedTuple):
    """The answer of a comparison."""

    #: Label of the better run; None if no difference is certain.
    better: str | None
    #: The figure that ranks the runs; None if nothing was compared.
    difference: Difference | None
    #: The answer, then its reasons.
    sentences: tuple[str, ...]


def verdict(comparison: Comparison) -> Verdict:
    """Return the better run by the first figure in which the runs are ranked, and how certain that is."""
    nothing = no_comparison(comparison)
    difference = None if nothing else ranking_difference(comparison)
    if nothing or difference is None:
        text = nothing or f"{comparison.label} and {comparison.baseline} are equal in every figure."
        return Verdict(None, None, (text, *_states(comparison)))
    better, answer = _answer(comparison, difference)
    unlike = "The runs served different requests." if comparison.paired_by == "none" else ""
    reasons = (
        unlike,
        *_states(comparison),
        comparison.certainty.values.get(difference.statistic.metric, ""),
        _intervals(comparison, difference),
        _others(comparison, difference),
        *comparison.certainty.sources,
    )
    return Verdict(better, difference, (answer, *filter(None, reasons)))


def ranking_difference(comparison: Comparison) -> Difference | None:
    """Return the figure that ranks the runs: the first in ``_RANKING`` that is certain, else the first.

    Of saturated runs it is the output rate.
    """
    known = [d for d in comparison.differences if d.change is not None and (d.baseline or d.value)]
    ranks_latency = comparison.states.rank_latency
    ranking = [d for d in known if d.statistic.metric in (_RANKING if ranks_latency else (RATE,))]
    ranking = ranking or (known if ranks_latency else [])
    certain = (one for one in ranking if is_certain(comparison, one))
    return next(certain, ranking[0] if ranking else None)


def _mean_wait(comparison: Comparison) -> Difference:
    """Return the difference of the mean TTFT."""
    return next(one for one in comparison.differences if one.statistic.metric == _MEAN)


def is_certain(comparison: Comparison, difference: Difference) -> bool:
    """Return True if no interval of a difference, over requests or of the model, holds no difference."""
    model = comparison.model.intervals.get(difference.statistic.metric)
    return difference.is_clear and (model is None or not model[0] <= 1 <= model[1])


def _answer(comparison: Comparison, difference: Difference) -> tuple[str | None, str]:
    label, baseline = comparison.label, comparison.baseline
    statistic = difference.statistic
    change = size(comparison, difference)
    if not comparison.states.rank_latency and not all(comparison.states.growing):
        crowded, holding = (baseline, label) if comparison.states.growing[0] else (label, baseline)
        if not comparison.states.same_load:
            return None, f"No verdict: only {crowded} is saturated, and the loads differ."
        wait = _mean_wait(comparison)
        figure = f"{label}'s {wait.statistic.words} is {size(comparison, wait)}"
        if wait.is_small or (wait.value < wait.baseline) is not (holding == label):
            return None, f"No certain difference: {crowded} is saturated, but {figure}."
        return holding, f"{holding} is better: {crowded} is saturated; {figure}."
    if difference.is_negligible:
        return None, (
            f"No difference of interest: {label}'s {statistic.words} is {change}, "
            f"below {100 * difference.least:g} %."
        )
    if not difference.is_clear:
        return None, f"No certain difference: {label}'s {statistic.words} is {change}, which may be chance."
    if not is_certain(comparison, difference):
        return None, (
            f"No certain difference: {label}'s {statistic.words} is {change}, less than the model can be "
            "wrong by in the same direction for both."
        )
    is_up = (difference.change or 0.0) > difference.neutral
    better = label if is_up == statistic.more_is_better else baseline
    return better, f"{better} is better: {label}'s {statistic.words} is {change}."


def _states(comparison: Comparison) -> list[str]:
    labels = (comparison.baseline, comparison.label)
    unserved = [
        f"{label}: {text}; figures are of the requests that it served."
        for label, text in zip(labels, comparison.unserved, strict=True)
        if text
    ]
    lines = [
        f"{label} is saturated: {sentence}."
        for label, sentence in zip(labels, comparison.saturated, strict=True)
        if sentence
    ]
    if lines and not comparison.states.rank_latency:
        lines.append(
            "Ranked by output rate, not by latency: that depends on the trace's length (--rank-saturated)."
        )
        if all(comparison.states.growing):
            wait = _mean_wait(comparison)
            lines[-1] += f" {comparison.label}'s {wait.statistic.words} here is {size(comparison, wait)}."
    return [*unserved, *lines]


def _intervals(comparison: Comparison, difference: Difference) -> str:
    """Return the intervals of the ranking figure: over requests, and of the model."""
    statistic, model = difference.statistic, comparison.model
    found = model.intervals.get(statistic.metric)
    parts = [f"stretches of time {ratio_interval(statistic, difference.low, difference.high)}"]
    if found is not None:
        at = "both runs at the same bound" if not model.reason else model.reason
        parts.append(f"model {ratio_interval(statistic, *found)} ({at})")
    elif model.reason:
        parts.append(f"model {model.reason}")
    return f"Intervals of the {statistic.words}'s change: {', '.join(parts)}."


def _others(comparison: Comparison, ranking: Difference) -> str:
    """Return the other figures in which one of the runs is certainly better."""
    better: list[str] = []
    worse: list[str] = []
    for difference in comparison.differences:
        if difference is ranking or not comparison.ranks(difference.statistic):
            continue
        if is_certain(comparison, difference):
            is_up = (difference.change or 0.0) > difference.neutral
            direction = better if is_up == difference.statistic.more_is_better else worse
            direction.append(difference.statistic.words)
    said = [
        f"{words} {', '.join(direction)}"
        for words, direction in (("better", better), ("worse", worse))
        if direction
    ]
    return f"Other figures of {comparison.label}: {'; '.join(said)}." if said else ""
