"""Refusal of settings that a machine's kind of store does not support, from files or from Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.cache.settings import CacheSettings, FullHit, PrefixViewSettings, SessionViewSettings, Touch
from kvcache_sim.cache.store_kinds import TREE, Ability, beyond_store, store_kind
from kvcache_sim.channels.cluster import plain
from kvcache_sim.serving.handover import of_vllm
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings


def refuse_beyond_store(cluster: ClusterSettings) -> None:
    """Raise UsageError for the first setting that the stores of the cluster do not support."""
    cache = cluster.cache
    for key, known in (("touch", get_args(Touch)), ("full_hit", get_args(FullHit))):
        if getattr(cache, key) not in known:
            got = repr(getattr(cache, key))
            raise UsageError("no such choice", f"cache.{key}", got, f"one of {', '.join(known)}")
    kind = store_kind(cache)
    if kind.policies is not None and cache.policy not in kind.policies:
        expected = f"one of {', '.join(kind.policies)}"
        what = f"cache.policy: no such policy under semantics {kind.name}"
        raise UsageError(what, got=repr(cache.policy), expected=expected)
    findings = [(f"cache.{key}", why) for key, why in beyond_store(cache)]
    findings += _of_cluster(cluster)
    for index, machine in enumerate(cluster.machines):
        findings += _of_machine(f"machines.{index}", machine, cache)
    for setting, why in findings:
        raise UsageError(f"{setting} has no effect", hint=why)


def _of_cluster(cluster: ClusterSettings) -> Iterator[tuple[str, str]]:
    """Yield (setting, reason) for prefix views, and for settings that need blocks."""
    lacks = {**store_kind(cluster.cache).lacks}
    if cluster.cache.groups is not None:
        lacks[Ability.BLOCKS] = "a pool of several cache groups has no blocks"
    if why := lacks.get(Ability.VIEWS):
        if cluster.cache.session_view != SessionViewSettings():
            yield "session_view", why
        if cluster.cache.prefix_view != PrefixViewSettings():
            yield "prefix_view", why
    ranks = {machine.replica.ranks for machine in cluster.machines}
    if len(ranks) > 1 or len(cluster.machines) % max(ranks):
        yield "replica.ranks", "an engine has as many machines as each of them says, one after another"
    of_fleet = cluster.membership
    if max(ranks) > 1 and (of_fleet.scaling or any(event.change != "drain" for event in of_fleet.events)):
        yield "membership", "machines are ranks of one engine, of which none can be missing"
    yield from _of_neighbors(cluster)
    yield from _of_handover(cluster)
    if why := lacks.get(Ability.BLOCKS):
        if cluster.router.index_blocks is not None:
            yield "router.index_blocks", why
        if any(machine.role == "prefill" for machine in cluster.machines):
            yield "role: prefill", f"{why} to hand over"


def _of_neighbors(cluster: ClusterSettings) -> Iterator[tuple[str, str]]:
    """Yield (setting, reason) for channels and for reads between machines."""
    networks = [each for each in (cluster.network, cluster.handover.network) if each is not None]
    channels = [*cluster.channels.values(), *(network.default for network in networks)]
    by_layer = cluster.movement.read_buffer_layers is not None or not all(map(plain, channels))
    is_used = any(each.role == "prefill" or len(each.tiers) > 1 for each in cluster.machines)
    tiered = [each for each in cluster.machines if len(each.tiers) > 1]
    if by_layer and any(each.replica.scheduler == "vllm" for each in tiered):
        yield "channels", "copies below vLLM's scheduler are sent first come, first served, as a whole"
    if by_layer and is_used and cluster.membership.changes_members:
        yield "membership", "machines whose channels are served layer by layer neither come nor go"
    if store_kind(cluster.cache) is TREE and cluster.cache.groups is None:
        return
    why = "only the tree's copies below the GPU are read from other machines"
    if cluster.movement.lookup == "cluster":
        yield "movement.lookup", why
    if cluster.pool is not None:
        yield "pool", why
    if cluster.handover.path == "via-cpu" and any(each.role == "prefill" for each in cluster.machines):
        yield "handover.path", why


def _of_handover(cluster: ClusterSettings) -> Iterator[tuple[str, str]]:
    """Yield (setting, reason) for hand-overs under vLLM's own scheduler."""
    schedulers = {machine.replica.scheduler for machine in cluster.machines}
    hands_over = any(machine.role == "prefill" for machine in cluster.machines)
    if not hands_over or "vllm" not in schedulers:
        return
    if len(schedulers) > 1:
        yield "replica.scheduler", of_vllm.ONE_SCHEDULER
    how = cluster.handover
    refused = of_vllm.refused_values(path=how.path, transfer=how.transfer, first_token=how.first_token)
    yield from ((f"handover.{key}", why) for key, why in refused)
    if not plain(cluster.handover.network.default):
        yield "handover.network", of_vllm.IN_ORDER


def _of_role(where: str, machine: MachineSettings) -> Iterator[tuple[str, str]]:
    """Yield (setting, reason) for a machine that hands over under vLLM's own scheduler."""
    if machine.replica.stages > 1:
        yield f"{where}.replica.stages", of_vllm.NO_STAGES
    if len(machine.tiers) > 1:
        yield f"{where}.tiers.{machine.tiers[1].name}", of_vllm.GPU_ALONE
    for key in of_vllm.QUEUE_BOUNDS:
        if machine.role != "prefill" and getattr(machine.replica, key) is not None:
            yield f"{where}.replica.{key}", of_vllm.QUEUED_TWICE


#: Engines with their own scheduler, by their names in settings.
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}


def _of_machine(where: str, machine: MachineSettings, cache: CacheSettings) -> Iterator[tuple[str, str]]:
    """Yield (setting, reason) for the tiers of one machine."""
    lacks = store_kind(cache).lacks
    if machine.replica.ranks > 1:
        if len(machine.tiers) > 1:
            yield (
                f"{where}.tiers.{machine.tiers[1].name}",
                "ranks that step together have no lower tiers here",
            )
        if machine.role != "both" or machine.replica.scheduler != "kvsim" or machine.replica.instant:
            yield f"{where}.replica.ranks", "ranks step together under kvsim's own scheduler alone"
    if machine.replica.stages > 1 and machine.replica.scheduler != "vllm":
        yield f"{where}.replica.stages", "micro-batches are those of vLLM's own scheduler"
    if machine.replica.scheduler == "vllm" and store_kind(cache).name != "vllm":
        yield f"{where}.replica.scheduler", "vLLM's scheduler needs its pool: cache.semantics vllm"
    if machine.replica.scheduler not in {*_ENGINES, *store_kind(cache).schedulers} and len(machine.tiers) > 1:
        yield f"{where}.tiers.{machine.tiers[1].name}", "this tier lies below vLLM's scheduler alone"
    if machine.replica.scheduler in _ENGINES and len(machine.tiers) > 1:
        below = f"{where}.tiers.{machine.tiers[1].name}"
        if machine.replica.scheduler not in store_kind(cache).schedulers:
            yield below, f"this tier does not lie below {_ENGINES[machine.replica.scheduler]}'s scheduler"
        elif machine.replica.scheduler == "vllm" and machine.replica.stages > 1:
            yield below, "below vLLM's scheduler no micro-batches run"
        if deeper := machine.tiers[1 + store_kind(cache).tiers_below(machine.replica.scheduler) :]:
            yield f"{where}.tiers.{deeper[0].name}", "no such tier below an engine's own scheduler"
    if machine.replica.scheduler == "sglang" and machine.role != "both":
        yield f"{where}.role: {machine.role}", "SGLang's scheduler serves whole requests here"
    if machine.replica.scheduler == "vllm" and machine.role != "both":
        yield from _of_role(where, machine)
    if (why := lacks.get(Ability.LOWER_TIERS)) and len(machine.tiers) > 1:
        yield f"{where}.tiers.{machine.tiers[1].name}", why
    if (why := lacks.get(Ability.NO_BOUND)) and machine.tiers[0].capacity_blocks is None:
        yield f"{where}.tiers.{TIERS[COMPUTE]}.capacity unbounded", why
    if why := lacks.get(Ability.TIER_POLICIES):
        policies = store_kind(cache).lower_policies
        for tier in machine.tiers:
            if tier is not machine.tiers[0] and policies is not None:
                if tier.policy not in policies:
                    yield f"{where}.tiers.{tier.name}.policy", f"its rules know {' and '.join(policies)}"
            elif tier.policy not in (CacheSettings().policy, cache.policy):
                yield f"{where}.tiers.{tier.name}.policy", why
