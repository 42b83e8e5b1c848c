"""The candidates of a search for capacity laid out as cells, so that a sweep's executors run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.sizing.candidate import CELL_FUNCTION
from kvcache_sim.sizing.question import Question
from kvcache_sim.sweeps.cell import Setting
from kvcache_sim.sweeps.plan import Plan, Resolved, lay_out
from kvcache_sim.sweeps.simulation import load_cell, prepare, refuse_unused
from kvcache_sim.sweeps.space import Space
from kvcache_sim.sweeps.study import SweepFile, load_mapping

#: Runs that the search of a candidate takes, about.
_RUNS = 10
#: The part of the requests that is left out before, where the scenario does not say: caches are cold.
_WARMUP: dict[str, Any] = {"warmup": "10%"}


def plan_capacity(
    file: SweepFile, question: Question, limits: Mapping[str, str], shard: tuple[int, int] = (1, 1)
) -> Plan:
    """Return the candidates of a study, each checked as a scenario before anything runs.

    ``limits`` are laid over the ``slo`` of the scenario. Raises UsageError where a candidate has no limits or
    a setting that no scenario accepts.
    """
    unused: list[dict[str, UsageError]] = []
    study, resolve = prepare(_measured(file, limits), unused)
    study = replace(study, cell_function=CELL_FUNCTION, parameters=question.parameters())

    def resolve_candidate(settings: Mapping[str, Setting]) -> Resolved:
        model = load_cell(study.base, study.directory, settings).model
        if model.replica.instant:
            raise UsageError("takes no time to limit", where="replica.instant", got="true", expected="false")
        if model.slo is None:
            hint = "--slo ttft=2s,tpot=50ms, or slo in the scenario"
            raise UsageError("no limits to attain", where="--slo", hint=hint)
        configuration, work = resolve(settings)
        return Resolved([configuration, study.parameters], _RUNS * work)

    space = file.space if file.space.factors() else Space(points=[{}])
    plan = lay_out(file.name, study, space, (file.repeats, file.seed), resolve_candidate)
    refuse_unused(unused)
    return Plan(plan.name, study, plan.cells, shard)


def _measured(file: SweepFile, limits: Mapping[str, str]) -> SweepFile:
    """Return the study with the limits, and a warm-up where its scenario names no part that is measured."""
    path, scenario = file.path, file.scenario
    if isinstance(scenario, str):
        path = path.parent / scenario
        scenario = load_mapping(path)
    values = {**scenario, "measure": scenario.get("measure") or _WARMUP}
    if limits:
        values["slo"] = {**(values.get("slo") or {}), **limits}
    return replace(file, path=path, scenario=values)
