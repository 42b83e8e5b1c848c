"""A scenario's ``slo`` section as the limits that the summary judges by."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcache_sim.metrics.slo import OTHERS, Limits, Objectives, RequestClass
from kvcache_sim.scenario.schema import ScenarioModel, SloClassSection, SloSection
from kvcache_sim.scenario.yaml_tree import Path

_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,31}"


def objectives_of(model: ScenarioModel) -> Objectives | None:
    """Return the objectives of a scenario; None where it has none."""
    section = model.slo
    if section is None:
        return None
    classes = tuple(RequestClass(name, own.when, _limits(own)) for name, own in section.classes.items())
    return Objectives(_limits(section), classes)


def trace_fields_of(model: ScenarioModel) -> frozenset[str]:
    """Return the fields of requests that the objectives need the whole trace for."""
    objectives = objectives_of(model)
    return objectives.trace_fields if objectives is not None else frozenset()


def _limits(section: SloSection | SloClassSection) -> Limits:
    return Limits(section.ttft, section.tpot, section.e2e)


def findings(model: ScenarioModel) -> Iterator[tuple[Path, str]]:
    """Yield objectives that nothing is judged by, and why."""
    objectives = objectives_of(model)
    if objectives is None:
        return
    limits = (objectives.others, *(own.limits for own in objectives.classes))
    if all(own == Limits() for own in limits):
        yield ("slo",), "it names no limit: add ttft, tpot or e2e"
    if model.replica.instant:
        yield ("slo",), "replica.instant is true: no time passes"
    for own in objectives.classes:
        if own.name == OTHERS:
            yield ("slo", "classes", own.name), "the requests that no class names are called so"
        elif not re.fullmatch(_NAME, own.name):
            why = "a class's name has at most 32 letters, digits, dashes and underscores"
            yield ("slo", "classes", own.name), why
