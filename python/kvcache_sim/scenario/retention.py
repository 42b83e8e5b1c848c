"""A scenario's retention hints, laid over its requests, and what rules them out."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.cache.store_kinds import TREE, store_kind
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.workload.members import HintRules, with_retention
from kvcache_sim.workload.trace import Trace


def findings(model: ScenarioModel) -> Iterator[Finding]:
    """Yield what rules hints out, and why."""
    if model.retention is None:
        return
    if store_kind(model.cache) is not TREE or not model.cache.enabled:
        yield Contradiction(("retention",), "hints need cache.semantics tree, detailed and enabled")
    if model.replica.instant:
        yield Contradiction(("retention",), "replica.instant is true: no time passes")


def hinted(trace: Trace, model: ScenarioModel) -> Trace:
    """Return the trace with its rows' hints; raises as ``with_retention``."""
    section = model.retention
    assert section is not None
    return with_retention(trace, HintRules(section.field, section.tool, dict(section.ttl_s)))
