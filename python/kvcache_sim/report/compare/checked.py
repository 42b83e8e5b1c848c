"""The claims of a comparison: each figure that it calls better, tried at another seed of both scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcache_sim.base.rng.root import repeat_seed
from kvcache_sim.base.units import significant
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.compare.comparison import Comparison, Difference
from kvcache_sim.report.compare.text import sentence
from kvcache_sim.report.compare.verdict import is_certain, verdict
from kvcache_sim.report.explain.claims import Checked
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import varied_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions


def check_verdict(found: Comparison, first: FinishedRun, second: FinishedRun) -> Iterator[Checked]:
    """Run both scenarios at another seed, and say of each certain figure whether the same run is better.

    A claim holds too where the two then differ by less than the smallest difference of interest. Nothing is
    run where no figure is certain. Raises what simulating raises.
    """
    answer = verdict(found)
    certain = [one for one in found.differences if found.ranks(one.statistic) and is_certain(found, one)]
    claims = {one.statistic.metric: sentence(found, one) for one in certain}
    if answer.better is not None and answer.difference is not None:
        claims[answer.difference.statistic.metric] = answer.sentences[0]
        certain += [answer.difference] if answer.difference not in certain else []
    again: list[dict[str, Any]] = []
    for difference in certain:
        name = difference.statistic.metric
        if first.scenario.get("trace") or second.scenario.get("trace"):
            reason = "not run: a trace has the same requests at every seed"
            yield Checked(name, claims[name], (), reason, None)
            continue
        seed = f"seed={repeat_seed(int(first.scenario['seed']), found.replications)}"
        again = again or [_summary(run, seed) for run in (first, second)]
        base, value = (metric_value(summary, name) or 0.0 for summary in again)
        outcome = f"{name} {significant(base)} and {significant(value)}"
        yield Checked(name, claims[name], (seed,), outcome, _holds(difference, base, value))


def _summary(run: FinishedRun, seed: str) -> dict[str, Any]:
    source = str(run.directory / "scenario.yaml")
    scenario = varied_from_text(run.scenario_text, source, run.directory, [seed])
    return execute(scenario, read_requests(scenario), RunOptions()).summary


def _holds(difference: Difference, base: float, value: float) -> bool:
    """Return True if a figure differs in the claimed direction, or by too little to be of interest."""
    less, more = sorted((base, value))
    was_up = (difference.change or 0.0) > difference.neutral
    return more <= less * (1 + difference.least) or (value > base) is was_up
