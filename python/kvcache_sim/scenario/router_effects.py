"""Settings of routers that cannot have an effect, and why."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.cache.store_kinds import Ability, store_kind
from kvcache_sim.scenario.idle import Contradiction
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.yaml_tree import Path
from kvcache_sim.serving.router.registry import ROUTERS, needs_of, readers_of


def idle_of_router(model: ScenarioModel, routed: int) -> Iterator[tuple[Path, str]]:
    """Yield each setting of ``router`` without effect; ``routed``: machines that requests arrive at."""
    router, policies = model.router, {model.router.policy}
    if any(machine.get("role") for machine in model.machines) or model.pools.prefill:
        policies.add(model.handover.router)
    own = any(":" in policy for policy in policies)
    for key in changed(router):
        if routed <= 1 and not (model.pools.prefill and key == "view"):
            yield ("router", key), "there is one machine to choose"
        if key == "policy" or own or any(key in needs_of(policy).keys for policy in policies):
            continue
        if readers := readers_of(key):
            yield ("router", key), f"router.policy is not {' or '.join(readers)}"
    if not any(router.scorers.values()):
        yield Contradiction(("router", "scorers"), "none has a weight: nothing would tell machines apart")
    yield from _index(model)
    if router.view.interval:
        where: Path = ("router", "view", "interval")
        if model.replica.instant:
            yield where, "replica.instant is true: no machine ever has a load"
        elif routed > 1 and not (own or any(needs_of(policy).engine_loads for policy in policies)):
            yield where, f"router.policy {router.policy} goes by no figures of the engines"
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
    kind, own = router.index.kind, ":" in router.policy
    if kind != "truth" and needs_of(router.policy).own_index != kind:
        keepers = [name for name in ROUTERS if needs_of(name).own_index == kind]
        yield ("router", "index", "kind"), f"router.policy is not {' or '.join(keepers)}"
    if "eviction_interval" in changed(router.index) and kind != "gateway-tree":
        yield ("router", "index", "eviction_interval"), "router.index.kind is not gateway-tree"
    if router.index_blocks is not None:
        if not own and not needs_of(router.policy).caches:
            yield ("router", "index_blocks"), f"router.policy {router.policy} looks at no prefixes"
        if why := store_kind(model.cache).lacks.get(Ability.BLOCKS):
            yield ("router", "index_blocks"), why
    elif router.index_delay:
        yield ("router", "index_delay"), "router.index_blocks is null: the router sees the truth"
    if router.index_delay and kind != "truth":
        yield ("router", "index_delay"), f"router.index.kind {kind} knows at once what it sent"


def keeps_an_index(model: ScenarioModel) -> bool:
    """Return whether the router knows prompts by what it heard or sent, not by what machines have."""
    router = model.router
    return router.index_blocks is not None or router.index.kind != "truth"
