"""Searches for the best settings that meet conditions, in Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.api.calls import at_least_one, public
from kvcache_sim.api.scenario import ScenarioLike, as_scenario
from kvcache_sim.api.settings import full_key, plain
from kvcache_sim.api.simulate import resolve_requests
from kvcache_sim.api.sweeping import Sweep, requests_in_a_file, study_of
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.optimize import Search, parse_goal, tried
from kvcache_sim.extras.study.sweeps.optimize import optimize as search_for
from kvcache_sim.extras.study.sweeps.simulation import prepare
from kvcache_sim.extras.study.sweeps.space import Choice, Interval, Space
from kvcache_sim.extras.study.sweeps.stop import stop_on_signals
from kvcache_sim.extras.study.sweeps.study import dimension
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.report.plain_table import plain_sentences
from kvcache_sim.report.ranking import rank_all
from kvcache_sim.report.ranking_text import verdict


class Optimum(Sweep):
    """The settings of a search that meet every condition, as a sweep has them; ``print`` shows the verdict.

    Attributes:
        settings: The best settings, for ``simulate(..., **settings)``; None where none meets every condition.
    """

    def __init__(self, rows: Sequence[Mapping[str, object]], objective: Objective) -> None:
        ranking = rank_all(rows, objective) if rows else None
        super().__init__([dict(ranked.row) for ranked in ranking.order] if ranking else [])
        best = self.rows[0] if self.rows else {}
        self.settings = {n.removeprefix("set."): v for n, v in best.items() if n.startswith("set.")} or None
        self._said = verdict(ranking, "trial") if ranking else ["no settings tried meet every condition"]

    def __str__(self) -> str:
        """Return the verdict."""
        return plain_sentences(self._said)


@public
def optimize(
    trace_or_workload: Any = None,
    /,
    scenario: ScenarioLike = None,
    *,
    space: Mapping[str, Any],
    minimize: str = "",
    maximize: str = "",
    subject_to: str | Sequence[str] = (),
    trials: int = 30,
    seed: int = 0,
    jobs: int = 1,
    directory: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Optimum:
    """Search for the best settings that meet conditions; needs the extra ``search``.

    Args:
        trace_or_workload: Requests: a ``Trace``, a trace file, a workload or columns, as ``simulate`` takes
            them.
        scenario: A ``Scenario``, the path of a scenario file, or settings; None: all defaults.
        space: Dotted setting → a list of values, or a range, ``{"low": "1GiB", "high": "1TiB"}``, with
            ``"scale": "log"`` or without, as ``random.space`` of a sweep file.
        minimize: Figure to make small, such as ``"cost"``; or
        maximize: figure to make large.
        subject_to: Conditions such as ``"ttft.p99 < 2s"``.
        trials: Number of settings to try.
        seed: Seed of the search.
        jobs: Processes that run trials.
        directory: Directory of the search, which a later call continues.
        settings: Keys that replace those of the scenario.

    Returns:
        The settings that meet every condition, the best first.

    Raises:
        UsageError: A setting, figure or condition is wrong.
        TraceError: The trace has data that cannot be trusted.
    """
    goal = parse_goal(minimize, maximize, [subject_to] if isinstance(subject_to, str) else subject_to)
    at_least_one(trials=trials, jobs=jobs)
    if not space:
        raise UsageError("nothing to try", where="space", expected="{key: [a, b]}")
    draws = dict(_draw(key, plain(value, key)) for key, value in space.items())
    asked, given = resolve_requests(trace_or_workload, as_scenario(scenario), settings)
    with requests_in_a_file(asked, given) as (written, folder), stop_on_signals() as stop:
        study, resolve = prepare(study_of(written, Space(draws=draws, draw_count=trials)))
        search = Search(draws, trials, seed, jobs, Limits())
        target = folder if directory is None else Path(directory)
        found = search_for(study, resolve, search, goal, target, stop)
        feasible = [trial for trial in found if trial.is_feasible and trial.value is not None]
        _, rows = tried(study, resolve, feasible, target)
    return Optimum(rows, goal.objective)


def _draw(key: str, values: Any) -> tuple[str, Interval | Choice]:
    """Return the dotted setting, and what a search may try for it."""
    if not isinstance(values, list):
        return key, dimension(values, f"space: {key}")
    names = {full_key(key, value) for value in values}
    return names.pop() if len(names) == 1 else key, dimension({"choice": values}, f"space: {key}")
