"""Where a scenario's requests could not be worked off in batches."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.scenario.fleet import cannot_be_emptied
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import ScenarioModel


def findings(model: ScenarioModel) -> Iterator[Finding]:
    """Yield what rules batches out, and why."""
    if model.offline is None:
        return
    reasons = (
        (model.replica.instant, "replica.instant is true: a request comes when the last has left"),
        (model.prefetch.policy == "session", "prefetch.policy session waits for turns at their times"),
        (model.router.view.interval != 0, "router.view.interval: polls follow the trace's arrivals"),
    )
    for holds, why in reasons:
        if holds:
            yield Contradiction(("offline",), why)
    if model.offline.flush:
        yield from (Contradiction(("offline", "flush"), why) for why in cannot_be_emptied(model))
