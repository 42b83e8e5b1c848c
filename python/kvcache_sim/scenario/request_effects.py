"""Settings of requests and routers that have no effect, and the reason.

Request settings: tenant, model, adapter and hints, as rows of a trace have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kvcache_sim.cache.store_kinds import TREE, Ability, store_kind
from kvcache_sim.scenario.cluster_sections import ModelsSection, TenantsSection, tenancy
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import changed, converted
from kvcache_sim.scenario.served_model import has_groups
from kvcache_sim.scenario.trace_section import TraceChanges
from kvcache_sim.scenario.yaml_tree import Path
from kvcache_sim.serving.router.affinity import CAN_BE_PASSED
from kvcache_sim.serving.router.registry import ROUTERS, needs_of, readers_of


def of_lanes(model: ScenarioModel) -> Iterator[Finding]:
    """Yield settings of the sessions at a time without effect, and the reason."""
    if "kind" in model.workload:
        return
    changes = converted(TraceChanges, model.workload)
    for key in changed(changes):
        if key == "concurrency" and model.replica.instant:
            yield ("workload", key), "replica.instant is true: requests come one by one"
        elif key in ("primers", "warmup_requests", "warmup") and changes.enter is None:
            yield ("workload", key), "sessions begin at their start: set workload.enter"
        elif key not in ("concurrency", "output_tokens") and changes.concurrency is None:
            yield ("workload", key), "sessions begin as the trace has them: set workload.concurrency"
    if changes.enter is not None and changes.enter[0] > changes.enter[1]:
        yield Contradiction(("workload", "enter"), "its end lies before its begin")
    if changes.enter and changes.warmup == "repeat":
        if not changes.warmup_requests:
            yield ("workload", "warmup"), "workload.warmup_requests is 0"
        elif changes.primers == "none":
            yield ("workload", "warmup"), "workload.primers is none: there is nothing to repeat"
    if changes.plays is not None and changes.plays < (changes.concurrency or 0):
        yield Contradiction(
            ("workload", "plays"), "workload.concurrency is larger: sessions would be missing"
        )


def of_tenants(model: ScenarioModel) -> Iterator[Finding]:
    """Yield tenant settings without effect or in conflict with other settings, and the reason."""
    section = model.tenants
    if section is None:
        return
    settings = tenancy(section)
    for key, why in _idle_of_tenants(section):
        yield ("tenants", *key), why
    if settings.holds_back and model.replica.instant:
        yield Contradiction(
            ("tenants",), "replica.instant is true: no request waits for its turn or for tokens"
        )
    if settings.bounds_caches and (store_kind(model.cache) is not TREE or not model.cache.enabled):
        yield Contradiction(("tenants",), "quotas of cache need cache.semantics tree, detailed and enabled")
    if settings.holds_back and model.router.view.interval:
        yield Contradiction(("tenants",), "router.view.interval: polls follow the trace's arrivals")
    if section.isolate and not model.cache.enabled:
        yield ("tenants", "isolate"), "cache.enabled is false"


def _idle_of_tenants(section: TenantsSection) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield keys of the section without effect, and the reason."""
    settings = tenancy(section)
    if section.order != "in-turn" and not settings.holds_back:
        yield ("order",), "no request waits for its turn: set tenants.max_in_flight"
    for name, each in section.of.items():
        if section.max_in_flight is None:
            for key in ("weight", "priority"):
                if key in changed(each):
                    yield ("of", name, key), "no request waits for its turn: set tenants.max_in_flight"
        if each.burst is not None and each.tokens_per_s is None:
            yield ("of", name, "burst"), "tokens_per_s is null"


def of_models(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield model and adapter settings without effect or in conflict with other settings, and the reason."""
    if model.models is not None:
        yield from _of_models(model, model.models, machines)
    if model.adapters is not None and not model.cache.enabled:
        yield Contradiction(("adapters",), "cache.enabled is false: blocks have no keys")


def _of_models(
    model: ScenarioModel, section: ModelsSection, machines: tuple[MachineSection, ...]
) -> Iterator[Finding]:
    if not section.of:
        yield ("models",), "it names no model: add models.of"
        return
    together = sum(each.machines for each in section.of.values())
    if together != model.cluster.machines:
        why = f"its models have {together} machines: set cluster.machines={together}"
        yield Contradiction(("models",), why)
    for name, each in section.of.items():
        path = ("models", "of", name)
        if each.model not in (None, model.model):
            served = (model, replace(model, model=each.model))
            if grouped := next((str(one.model) for one in served if has_groups(one)), None):
                why = f"the cache groups of {grouped} are the same on all machines"
                yield Contradiction((*path, "model"), why)
    fleet = model.fleet
    joins = fleet.scaling is not None or any(event.do == "join" for event in fleet.plan)
    reasons = (
        (joins, "the model of a joining machine is undefined"),
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


def of_retention(model: ScenarioModel) -> Iterator[Finding]:
    """Yield settings in conflict with retention hints, and the reason."""
    if model.retention is None:
        return
    if store_kind(model.cache) is not TREE or not model.cache.enabled:
        yield Contradiction(("retention",), "hints need cache.semantics tree, detailed and enabled")
    if model.replica.instant:
        yield Contradiction(("retention",), "replica.instant is true: no time passes")


def idle_of_router(model: ScenarioModel, routed: int) -> Iterator[tuple[Path, str]]:
    """Yield ``router`` settings without effect; ``routed``: machines that requests arrive at."""
    router, policies = model.router, {model.router.policy}
    if any(machine.get("role") for machine in model.machines) or model.pools.prefill:
        policies.add(model.handover.router)
    is_plugin = any(":" in policy for policy in policies)
    for key in changed(router):
        if routed <= 1 and not (model.pools.prefill and key == "view"):
            yield ("router", key), "there is one machine to choose"
        if key == "policy" or is_plugin or any(key in needs_of(policy).keys for policy in policies):
            continue
        if readers := readers_of(key):
            yield ("router", key), f"router.policy is not {' or '.join(readers)}"
    if router.affinity is not None and (routers := policies - {*CAN_BE_PASSED}):
        yield ("router", "affinity"), f"{min(routers)} counts what it sends itself"
    if router.affinity is not None and model.handover.decide != "always":
        yield ("router", "affinity"), "handover.decide asks the policy for each request"
    if not router.hotspot_detection:
        for key in ("class_prefix_blocks", "window_requests"):
            if key in changed(router):
                yield ("router", key), "router.hotspot_detection is false"
    if not any(router.scorers.values()):
        yield Contradiction(("router", "scorers"), "none has a weight: all machines would score the same")
    yield from _index(model)
    if router.view.interval:
        where: Path = ("router", "view", "interval")
        if model.replica.instant:
            yield where, "replica.instant is true: no machine ever has a load"
        elif routed > 1 and not (is_plugin or any(needs_of(policy).engine_loads for policy in policies)):
            yield where, f"router.policy {router.policy} uses no metrics of the engines"
    needs = needs_of(router.policy)
    if needs.load_alone and model.replica.instant:
        yield ("router", "policy"), "replica.instant is true: no machine ever has a load"
    if needs.caches and not model.cache.enabled:
        yield ("router", "policy"), "cache.enabled is false"
    why = store_kind(model.cache).lacks.get(Ability.BLOCKS)
    if why and needs.sent_blocks:
        yield ("router", "policy"), why


def _index(model: ScenarioModel) -> Iterator[tuple[Path, str]]:
    router = model.router
    kind, is_plugin = router.index.kind, ":" in router.policy
    if kind != "truth" and needs_of(router.policy).own_index != kind:
        kept_routers = [name for name in ROUTERS if needs_of(name).own_index == kind]
        yield ("router", "index", "kind"), f"router.policy is not {' or '.join(kept_routers)}"
    if "eviction_interval" in changed(router.index) and kind != "gateway-tree":
        yield ("router", "index", "eviction_interval"), "router.index.kind is not gateway-tree"
    if router.index_blocks is not None:
        needs = needs_of(router.policy)
        if not is_plugin and (needs.estimates or not needs.caches):
            what = "estimates by the caches themselves" if needs.estimates else "uses no prefixes"
            yield ("router", "index_blocks"), f"router.policy {router.policy} {what}"
        if why := store_kind(model.cache).lacks.get(Ability.BLOCKS):
            yield ("router", "index_blocks"), why
    elif router.index_delay:
        yield ("router", "index_delay"), "router.index_blocks is null: the router reads the caches themselves"
    if router.index_delay and kind != "truth":
        yield ("router", "index_delay"), f"router.index.kind {kind} is updated when a request is sent"


def keeps_an_index(model: ScenarioModel) -> bool:
    """Return True if the router has its own index of prompts instead of the machines' caches."""
    router = model.router
    return router.index_blocks is not None or router.index.kind != "truth"
