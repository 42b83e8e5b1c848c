"""Where a scenario's models and adapters have no effect, or cannot be served beside other settings."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kvcache_sim.scenario.cache_groups import has_groups
from kvcache_sim.scenario.engine_tiers import lower_semantics
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.models_section import ModelsSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield what of the sections has no effect, or is ruled out by other settings, and why."""
    if model.models is not None:
        yield from _of_models(model, model.models, machines)
    if model.adapters is not None:
        for why in _nobody_may_wait(model, machines):
            yield Contradiction(("adapters",), why)
        if not model.cache.enabled:
            yield Contradiction(("adapters",), "cache.enabled is false: blocks have no keys")


def _of_models(
    model: ScenarioModel, own: ModelsSection, machines: tuple[MachineSection, ...]
) -> Iterator[Finding]:
    if not own.of:
        yield ("models",), "it names no model: add models.of"
        return
    names, seen = list(own.of), set[str]()
    shares = [each for each in own.of.values() if each.shares is not None]
    together = sum(each.machines for each in own.of.values())
    if together != model.cluster.machines:
        why = f"its models have {together} machines: set cluster.machines={together}"
        yield Contradiction(("models",), why)
    for name, each in own.of.items():
        path = ("models", "of", name)
        if each.shares is not None:
            if each.shares not in seen:
                yield Contradiction((*path, "shares"), f"one of {', '.join(names)} that stands before it")
            elif own.of[each.shares].shares is not None:
                yield Contradiction((*path, "shares"), f"name the model whose machines {each.shares} shares")
            elif each.machines > own.of[each.shares].machines:
                yield Contradiction((*path, "machines"), f"{each.shares} has fewer")
        takes_turns = each.shares is not None or any(other.shares == name for other in shares)
        if takes_turns and each.weights is None:
            yield Contradiction(path, "add weights: it takes turns, and waking it takes the time of a load")
        if each.weights is not None and not takes_turns:
            yield (*path, "weights"), "its machines are its own: it never sleeps"
        if each.model not in (None, model.model):
            served = (model, replace(model, model=each.model))
            if grouped := next((str(one.model) for one in served if has_groups(one)), None):
                why = f"the cache groups of {grouped} are the same on all machines"
                yield Contradiction((*path, "model"), why)
        seen.add(name)
    for key in ("load_rate", "sleep_rate"):
        if not shares and key in changed(own):
            yield ("models", key), "no model shares machines"
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
    if shares:
        for why in (*_nobody_may_wait(model, machines), *_keeps_blocks(model)):
            yield Contradiction(("models",), why)
        if model.adapters is not None:
            yield Contradiction(("adapters",), "models take turns on machines: they load no adapters")


def _keeps_blocks(model: ScenarioModel) -> Iterator[str]:
    """Yield why a model that goes to sleep cannot drop its blocks on the compute tier alone."""
    if has_groups(model):
        yield "a pool of several cache groups is not emptied when a model goes to sleep"
    if lower_semantics(model) == "hicache":
        yield "hicache's tree is not emptied on one tier alone when a model goes to sleep"


def _nobody_may_wait(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[str]:
    """Yield why no request can wait between its router and its engine."""
    fleet = model.fleet
    if model.replica.instant:
        yield "replica.instant is true: no time passes"
    if fleet.scaling is not None or any(event.do in ("join", "drain", "lose") for event in fleet.plan):
        yield "machines come and go (fleet)"
    if any(fault.do == "lose" for fault in fleet.faults):
        yield "machines come and go (fleet)"
    if any(machine.role != "both" for machine in machines):
        yield "prompts are handed over between machines"
    if model.replica.dp > 1:
        yield "machines are ranks of one engine (replica.dp)"
    if model.router.view.interval:
        yield "router.view.interval: polls follow the trace's arrivals"
    if model.cache.accounting == "simplified" or model.cache.discard_on_finish:
        yield "cache.accounting simplified and cache.discard_on_finish keep no blocks between requests"
