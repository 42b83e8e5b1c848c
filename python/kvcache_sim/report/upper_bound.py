"""A run's token hit rate and its upper bound: the same numbers in cards, sentences and pictures."""

from __future__ import annotations

import numpy as np

from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.scenario.load import scenario_of_run
from kvcache_sim.scenario.measure import reusable_tokens

UPPER_BOUND = "cache.upper_bound_token_hit_rate"


def hit_rates(run: FinishedRun) -> tuple[float, float] | None:
    """Return the token hit rate, and that of one unbounded cache shared by all machines.

    The summary of a run whose trace was read in windows, or that an older version saved, lacks the second:
    both are then computed over all finished requests. None where the trace is not available, or no request
    finished.
    """
    hit, most = (metric_value(run.summary, name) for name in ("cache.token_hit_rate", UPPER_BOUND))
    if hit is not None and most is not None:
        return hit, most
    rows = run.finished
    if run.trace is None or not len(rows["request"]):
        return None
    scenario = scenario_of_run(run.scenario_text, run.directory)
    cached, prompts = rows["cached_prefix_length_used"], rows["input_tokens"].sum()
    reusable = np.maximum(reusable_tokens(scenario, run.trace)[rows["request"]], cached)
    return float(cached.sum() / prompts), float(reusable.sum() / prompts)


def upper_bound_of(run: FinishedRun) -> float | None:
    """Return the second of ``hit_rates``."""
    rates = hit_rates(run)
    return None if rates is None else rates[1]
