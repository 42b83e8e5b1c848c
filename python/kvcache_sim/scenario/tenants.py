"""Where a scenario's tenants could not get what they are due."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.cache.store_kinds import TREE, store_kind
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.tenants_section import idle, tenancy


def findings(model: ScenarioModel) -> Iterator[Finding]:
    """Yield what of a scenario's tenants has no effect, or is ruled out by other settings, and why."""
    own, settings = model.tenants, tenancy(model.tenants)
    if own is None or settings is None:
        return
    for key, why in idle(own):
        yield ("tenants", *key), why
    if settings.holds_back and model.replica.instant:
        yield Contradiction(("tenants",), "replica.instant is true: nobody waits for a turn or for tokens")
    if settings.bounds_caches and (store_kind(model.cache) is not TREE or not model.cache.enabled):
        yield Contradiction(("tenants",), "quotas of cache need cache.semantics tree, detailed and enabled")
    if settings.holds_back and model.router.view.interval:
        yield Contradiction(("tenants",), "router.view.interval: polls follow the trace's arrivals")
    if own.isolate and not model.cache.enabled:
        yield ("tenants", "isolate"), "cache.enabled is false"
