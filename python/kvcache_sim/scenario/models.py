"""Where a scenario's models and adapters have no effect, or cannot be served beside other settings."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kvcache_sim.scenario.cache_groups import has_groups
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.models_section import ModelsSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield what of the sections has no effect, or is ruled out by other settings, and why."""
    if model.models is not None:
        yield from _of_models(model, model.models, machines)
    if model.adapters is not None and not model.cache.enabled:
        yield Contradiction(("adapters",), "cache.enabled is false: blocks have no keys")


def _of_models(
    model: ScenarioModel, own: ModelsSection, machines: tuple[MachineSection, ...]
) -> Iterator[Finding]:
    if not own.of:
        yield ("models",), "it names no model: add models.of"
        return
    together = sum(each.machines for each in own.of.values())
    if together != model.cluster.machines:
        why = f"its models have {together} machines: set cluster.machines={together}"
        yield Contradiction(("models",), why)
    for name, each in own.of.items():
        path = ("models", "of", name)
        if each.model not in (None, model.model):
            served = (model, replace(model, model=each.model))
            if grouped := next((str(one.model) for one in served if has_groups(one)), None):
                why = f"the cache groups of {grouped} are the same on all machines"
                yield Contradiction((*path, "model"), why)
    fleet = model.fleet
    joins = fleet.scaling is not None or any(event.do == "join" for event in fleet.plan)
    reasons = (
        (joins, "which model a machine that joins serves is not said"),
        (any(fault.do == "lose" and fault.repair for fault in fleet.faults), "lost machines join again"),
        (any(machine.role != "both" for machine in machines), "prompts are handed over between machines"),
        (model.fetch.lookup == "cluster", "machines read from each other (fetch.lookup cluster)"),
        (model.replica.dp > 1, "machines are ranks of one engine (replica.dp)"),
        (model.cluster.pool is not None, "machines share cluster.pool, whose blocks name no model"),
        (
            model.router.index_blocks is not None and model.router.index.kind == "truth",
            "the router keeps an index of all machines",
        ),
    )
    for holds, why in reasons:
        if holds:
            yield Contradiction(("models",), why)
