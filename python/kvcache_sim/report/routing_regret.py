"""Routing regret of a finished run, run again: each routing choice compared with the best machine."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.base.errors import TraceError
from kvcache_sim.base.units import format_percent, format_time_ms
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.scenario.load import scenario_to_repeat
from kvcache_sim.scenario.requests import open_requests
from kvcache_sim.simulation import RunOptions, simulate

_PREFIX = "regret."


def routing_regret(run: FinishedRun, plugins: bool = False) -> dict[str, int]:
    """Run a finished run again and return the sums of ``serving.router.regret.Regret`` by name.

    Nothing is written; plug-ins need ``plugins``. Raises TraceError if the digest differs from
    the run's. Cost: a run, and a look at every machine a request.
    """
    scenario = scenario_to_repeat(run.scenario_text, run.directory, plugins)
    options = RunOptions(regret=True)
    again = simulate(scenario.settings, open_requests(scenario, options), options=options)
    was = run.summary["digest"]["results"]
    if again.digest_results != was:
        raise TraceError(
            "not the run that was", where=str(run.directory), got=again.digest_results[:16], expected=was[:16]
        )
    return {
        name.removeprefix(_PREFIX): value
        for name, value in again.counters.items()
        if name.startswith(_PREFIX)
    }


def regret_text(sums: Mapping[str, int], policy: str, machines: int) -> str:
    """Return the regret in sentences."""
    choices, prompt = max(sums["choices"], 1), max(sums["prompt_tokens"], 1)
    found, best = sums["found_tokens"] / prompt, sums["best_found_tokens"] / prompt
    expected, least = (sums[name] / choices / 1e6 for name in ("expected_ns", "least_expected_ns"))
    return "\n".join(
        [
            f"Router {policy}, {sums['choices']:,} choices among {machines:,} machines",
            f"  Hits: {format_percent(found)} of prompt tokens were cached on the chosen machine, "
            f"{format_percent(best)} on the best machine: {format_percent(best - found)} lost to routing.",
            f"  TTFT: {format_time_ms(expected)} for the queue and the prompt on the chosen machine, "
            f"{format_time_ms(least)} on the best: {format_time_ms(expected - least)} lost per request. "
            f"Another machine was sooner for {format_percent(sums['later'] / choices)} of requests.",
            "  Each choice is judged alone, against the caches and queues at its time; a choice that spreads "
            "a prefix may pay later.",
        ]
    )
