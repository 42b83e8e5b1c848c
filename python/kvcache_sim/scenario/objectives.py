"""A scenario's ``slo`` section as the limits of the summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcache_sim.metrics.slo import OTHERS, Limits, Objectives, RequestClass
from kvcache_sim.scenario.schema import ScenarioModel, SloClassSection, SloSection
from kvcache_sim.scenario.yaml_tree import Path

_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,31}"


def objectives_of(model: ScenarioModel) -> Objectives | None:
    """Return the objectives of a scenario; None without the section."""
    section = model.slo
    if section is None:
        return None
    classes = tuple(RequestClass(name, named.when, _limits(named)) for name, named in section.classes.items())
    return Objectives(_limits(section), classes)


def trace_fields_of(model: ScenarioModel) -> frozenset[str]:
    """Return the request fields for which the objectives need the whole trace."""
    objectives = objectives_of(model)
    return objectives.trace_fields if objectives is not None else frozenset()


def _limits(section: SloSection | SloClassSection) -> Limits:
    return Limits(section.ttft, section.tpot, section.e2e)


def findings(model: ScenarioModel) -> Iterator[tuple[Path, str]]:
    """Yield objectives that judge nothing, and the reason."""
    objectives = objectives_of(model)
    if objectives is None:
        return
    limits = (objectives.others, *(named.limits for named in objectives.classes))
    if all(named == Limits() for named in limits):
        yield ("slo",), "it names no limit: add ttft, tpot or e2e"
    if model.replica.instant:
        yield ("slo",), "replica.instant is true: no time passes"
    for named in objectives.classes:
        if named.name == OTHERS:
            yield ("slo", "classes", named.name), "the requests that no class names are called so"
        elif not re.fullmatch(_NAME, named.name):
            why = "a class's name has at most 32 characters: A-Z, a-z, 0-9, - and _"
            yield ("slo", "classes", named.name), why
