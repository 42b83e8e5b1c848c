"""Where a scenario's retention hints could not be obeyed."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.cache.store_kinds import TREE, store_kind
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import ScenarioModel


def findings(model: ScenarioModel) -> Iterator[Finding]:
    """Yield what rules hints out, and why."""
    if model.retention is None:
        return
    if store_kind(model.cache) is not TREE or not model.cache.enabled:
        yield Contradiction(("retention",), "hints need cache.semantics tree, detailed and enabled")
    if model.replica.instant:
        yield Contradiction(("retention",), "replica.instant is true: no time passes")
