"""Settings of routers that cannot have an effect, and why."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.cache.store_kinds import Ability, store_kind
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.yaml_tree import Path
from kvcache_sim.serving.router.registry import POLLING, PREFIX_AWARE

#: Keys of some routers, and whose.
_OF_ROUTERS = {
    "load_threshold": ("longest-prefix",),
    "overlap_weight": ("overlap-cost", "dynamo-kv"),
    "temperature": ("dynamo-kv",),
    "cache_threshold": ("cache-aware",),
    "balance_abs_threshold": ("cache-aware",),
    "balance_rel_threshold": ("cache-aware",),
    "scorers": ("weighted",),
    "kv_aware_threshold": ("kvaware",),
    "load_weight": ("loadaware",),
    "max_load_skew": ("consistent-hashing",),
}
#: Indexes that are not the truth, and whose.
_KINDS = {"estimated": "weighted", "gateway-tree": "cache-aware"}
#: Routers that keep books of blocks.
_BY_BLOCKS = frozenset({"dynamo-kv"})


def idle_of_router(model: ScenarioModel, routed: int) -> Iterator[tuple[Path, str]]:
    """Yield each setting of ``router`` without effect; ``routed``: machines that requests arrive at."""
    router, policies = model.router, {model.router.policy}
    if any(machine.get("role") for machine in model.machines) or model.pools.prefill:
        policies.add(model.handover.router)
    own = any(":" in policy for policy in policies)
    for key, field in type(router).model_fields.items():
        default = field.value({})
        if getattr(router, key) == default:
            continue
        if routed <= 1 and not (model.pools.prefill and key == "view"):
            yield ("router", key), "there is one machine to choose"
        if key in _OF_ROUTERS and not (own or policies & {*_OF_ROUTERS[key]}):
            yield ("router", key), f"router.policy is not {' or '.join(_OF_ROUTERS[key])}"
    yield from _index(model)
    if router.view.interval:
        where: Path = ("router", "view", "interval")
        if model.replica.instant:
            yield where, "replica.instant is true: no machine ever has a load"
        elif routed > 1 and not (own or policies & POLLING):
            yield where, f"router.policy {router.policy} goes by no figures of the engines"
    if (
        router.policy in ("least-loaded", "power-of-two", "vllm-dp", "vllm-dp-waiting")
        and model.replica.instant
    ):
        yield ("router", "policy"), "replica.instant is true: no machine ever has a load"
    if router.policy in PREFIX_AWARE and not model.cache.enabled:
        yield ("router", "policy"), "cache.enabled is false"
    why = store_kind(model.cache).lacks.get(Ability.BLOCKS)
    if why and router.policy in _BY_BLOCKS:
        yield ("router", "policy"), why


def _index(model: ScenarioModel) -> Iterator[tuple[Path, str]]:
    router = model.router
    kind, own = router.index.kind, ":" in router.policy
    if kind != "truth" and router.policy != _KINDS[kind]:
        yield ("router", "index", "kind"), f"router.policy is not {_KINDS[kind]}"
    default = type(router.index).model_fields["eviction_interval"].default
    if router.index.eviction_interval != default and kind != "gateway-tree":
        yield ("router", "index", "eviction_interval"), "router.index.kind is not gateway-tree"
    if router.index_blocks is not None:
        if router.policy not in PREFIX_AWARE and not own:
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
