"""A scenario's retention hints: put to its requests, and where they could not be obeyed."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.cache.store_kinds import TREE, store_kind
from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.workload.retention import HintRules, with_retention
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
    """Return the trace with its rows' hints; raises UsageError where pinned blocks would have to go."""
    section = model.retention
    assert section is not None
    trace = with_retention(
        trace, HintRules(section.field, section.tool, dict(section.ttl_s), dict(section.pin_s))
    )
    fleet = model.fleet
    changes = {
        "fleet": bool(fleet.plan or fleet.faults or fleet.scaling),
        "offline": model.offline is not None,
        "models": model.models is not None,
    }
    for name, there in changes.items():
        if there and len(trace.pin_ns):
            raise UsageError(
                f"rows are pinned, and {name} empties caches or machines",
                where="retention",
                expected=f"no pins, or no {name}",
            )
    return trace
