"""Lowering of a checked scenario to the frozen settings of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.cache.settings import (
    WRITE_BACK,
    BlockForm,
    CacheSettings,
    MovementSettings,
    PrefixViewSettings,
    SessionViewSettings,
    TierSettings,
)
from kvcache_sim.channels.settings import NetworkSettings
from kvcache_sim.model.adjusted import WithExtraTime, WithLaunchTime, WithSequenceTime
from kvcache_sim.model.hosts import load_host
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.served_kernels import served_kernels
from kvcache_sim.model.step_time import StepTime, zero_step_time
from kvcache_sim.model.step_times import is_sum_of_kernels, load_step_time
from kvcache_sim.scenario.channels import Wiring
from kvcache_sim.scenario.cluster_sections import (
    FleetSection,
    model_of_machine,
    models_settings,
    tenancy,
)
from kvcache_sim.scenario.engine_tiers import (
    chunk_tokens,
    lazy_tokens,
    lower_semantics,
    lower_write,
    storage_prefetch,
)
from kvcache_sim.scenario.fleet import membership_plan
from kvcache_sim.scenario.fleet_events import fleet_events, with_slow_channels
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.machines import own_path
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.release_defaults import release_of, written_keys
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.schema import HandoverSection, MachineSection, ScenarioModel
from kvcache_sim.scenario.section import lowered
from kvcache_sim.scenario.served_model import cache_groups, copies_of, served_model
from kvcache_sim.scenario.shared_pool import pool_settings, with_pool
from kvcache_sim.scenario.speculation import speculation
from kvcache_sim.scenario.yaml_tree import Tree, at_location
from kvcache_sim.serving.membership.plan import MembershipPlan
from kvcache_sim.serving.settings import (
    AffinitySettings,
    ClusterSettings,
    HandoverSettings,
    MachineSettings,
    ReplicaSettings,
    RouterSettings,
    SglangRelease,
)


def lower(
    model: ScenarioModel, machines: tuple[MachineSection, ...], wiring: Wiring, tree: Tree
) -> ClusterSettings:
    """Return the settings that the simulation takes: integers in tokens, blocks, bytes and ns.

    ``model.model`` must be set. Raises UsageError for an unknown model or step-time set and for a tier
    smaller than one block.
    """
    pool, fleet = model.cluster.pool, model.fleet
    if pool is not None:
        wiring = with_pool(wiring, pool, tree)
    if fleet.plan or fleet.faults:
        wiring = with_slow_channels(wiring, fleet_events(model, tree))
    cache = _cache(model, tree)
    block_bytes = cache.block_bytes
    step_times: dict[tuple[str, ...], StepTime] = {}
    replicas = [
        at_location(
            tree,
            own_path(tree, index, ("replica", "host")),
            partial(with_host, machine.replica, written_keys(tree, index)),
        )
        for index, machine in enumerate(machines)
    ]
    hosts = [_of_layers(model, index, replica) for index, replica in enumerate(replicas)]
    kinds = [_step_time_kind(replica, hosts[index], model, index) for index, replica in enumerate(replicas)]
    for index, (replica, kind) in enumerate(zip(replicas, kinds, strict=True)):
        if replica.scheduler == "sglang":
            _refuse_less_than_a_page(replica, cache, tree, index)
        if kind not in step_times:
            path = own_path(tree, index, ("replica", "step_time"))
            make = partial(_step_time, replica, hosts[index], partial(_served, model, index))
            step_times[kind] = at_location(tree, path, make)
    return ClusterSettings(
        machines=tuple(
            MachineSettings(
                tiers=_tiers(model, (machine, index), cache, tree),
                step_time=step_times[kinds[index]],
                replica=at_location(
                    tree,
                    own_path(tree, index, ("replica", "host")),
                    partial(_replica, replicas[index], model.seed),
                ),
                edge_channels=wiring.edge_channels[index],
                edge_rails=wiring.edge_rails[index],
                role=machine.role,
                kv=_kv(model, index, machine.replica),
            )
            for index, machine in enumerate(machines)
        ),
        channels=wiring.channels,
        network=wiring.network,
        cache=cache,
        movement=_movement(model),
        router=_router(model.router),
        handover=_handover(model.handover, wiring.handovers),
        pool=None if pool is None else pool_settings(pool, model.cache.policy, block_bytes, tree),
        membership=MembershipPlan()
        if fleet == FleetSection()
        else membership_plan(model, tree, (block_bytes, cache.block_size_tokens)),
        tenants=None if model.tenants is None else tenancy(model.tenants),
        models=None if model.models is None else models_settings(model.models),
        seed=model.seed,
    )


def _refuse_less_than_a_page(replica: ReplicaSection, cache: CacheSettings, tree: Tree, index: int) -> None:
    """Raise UsageError if no chunk fits the budget: SGLang's end with a page, and it refuses to start."""
    if replica.max_num_batched_tokens < cache.block_size_tokens:
        raise UsageError(
            "max_num_batched_tokens is below a page of SGLang's tree",
            where=tree.location(own_path(tree, index, ("replica", "max_num_batched_tokens"))),
            got=str(replica.max_num_batched_tokens),
            expected=f"at least {cache.block_size_tokens} tokens",
            hint="set a smaller cache.block_size",
        )


def with_host(replica: ReplicaSection, written: frozenset[str]) -> ReplicaSection:
    """Return the replica with its host's values of the keys that are not written.

    Raises UsageError for an unknown host, and for a host without effect because its values are all written.
    """
    if replica.host is None:
        return replica
    host = load_host(replica.host)
    usual = ReplicaSection()
    taken = {k: value for k, value in host.figures_for(replica.step_time).items() if k not in written}
    if host.figures and not any(value != getattr(usual, key) for key, value in taken.items()):
        raise UsageError("replica.host has no effect", got=host.name, hint="all its values are given already")
    return replace(replica, **taken)


def left_to_hosts(machines: tuple[MachineSection, ...], tree: Tree) -> frozenset[str]:
    """Return the keys of ``replica`` that machines' hosts fill: a resolved scenario leaves them open too."""
    return frozenset(
        key
        for index, machine in enumerate(machines)
        if machine.replica.host is not None
        for key in load_host(machine.replica.host).figures.keys() - written_keys(tree, index)
    )


def _named(model: ScenarioModel, machine: int) -> str | None:
    """Return the name of a machine's own model; None if it serves the scenario's."""
    return None if model.models is None else model_of_machine(model.models, machine).model


def _served(model: ScenarioModel, machine: int) -> ModelSpec:
    """Return the model that a machine serves."""
    named = _named(model, machine)
    return served_model(model if named is None else replace(model, model=named))


def _kv(model: ScenarioModel, machine: int, replica: ReplicaSection) -> tuple[int, int] | None:
    """Return the KV bytes per token and the layers of a machine's own model, or of its own degree.

    None if it has neither.
    """
    named, usual = _named(model, machine), model.replica
    if named is None and (replica.step_time, replica.cp) == (usual.step_time, usual.cp):
        return None
    spec = _served(model, machine)
    given = None if named else model.cache.kv_bytes_per_token
    found = copies_of(model, replica, spec).bytes_on_gpus(given or spec.kv_bytes_per_token)
    return found, spec.layers


class _HostTimes(NamedTuple):
    """The host's time to launch all layers of a machine's model, and the extra time of each step, in ns."""

    launch_ns: int
    extra_ns: int


def _of_layers(model: ScenarioModel, machine: int, replica: ReplicaSection) -> _HostTimes:
    has_layers = replica.launch_per_layer or replica.step_extra_per_layer
    layers = _served(model, machine).layers if has_layers else 0
    extra_ns = replica.step_extra + replica.step_extra_per_layer * layers
    return _HostTimes(replica.launch_per_layer * layers, extra_ns)


def _step_time_kind(
    replica: ReplicaSection, host: _HostTimes, model: ScenarioModel, machine: int
) -> tuple[str, ...]:
    """Return the identity of a step-time model: its name and what is added; when instant, its size."""
    if replica.instant:
        return ("instant", str(replica.max_num_batched_tokens), str(replica.max_num_seqs))
    of_host = str(_sequence_ns(replica)), *map(str, host), str(replica.eager_chunks)
    kind = replica.step_time, replica.links or "", *of_host, str(replica.pp)
    if not is_sum_of_kernels(replica.step_time) and (replica.pp or 1) == 1:
        return kind
    return (*kind, _named(model, machine) or "", _sampler(replica), str(replica.sustained_clocks))


def _step_time(replica: ReplicaSection, host: _HostTimes, served: Callable[[], ModelSpec]) -> StepTime:
    """Return the step-time model of a replica; with ``instant`` the model whose steps take no time."""
    if replica.instant:
        return zero_step_time(replica.max_num_batched_tokens, replica.max_num_seqs)
    found = load_step_time(replica.step_time, replica.links, replica.pp or 1)
    if is_sum_of_kernels(replica.step_time):
        found = served_kernels(
            found, replica.step_time, served(), _sampler(replica), replica.sustained_clocks
        )
    if (replica.pp or 1) > 1:
        from kvcache_sim.model.stages import with_stages

        found = with_stages(found, replica.step_time, served(), replica.pp or 1, replica.links)
    found = WithExtraTime(found, host.extra_ns) if host.extra_ns else found
    if host.launch_ns:
        found = WithLaunchTime(found, host.launch_ns, eager_chunks=replica.eager_chunks)
    host_ns = _sequence_ns(replica)
    return WithSequenceTime(found, host_ns) if host_ns else found


def _sampler(replica: ReplicaSection) -> str:
    """Return the sampler that filters logits; empty: none does. SGLang's has always been FlashInfer's."""
    if replica.sampling == "plain":
        return ""
    return "fused" if replica.scheduler == "sglang" else replica.sampler


def _sequence_ns(replica: ReplicaSection) -> int:
    """Return the host's time per sequence between two steps, which asynchronous scheduling hides.

    Over stages it is no part of a step.
    """
    is_part = replica.async_scheduling == "none" and (replica.pp or 1) == 1
    return replica.step_overhead_per_sequence if is_part else 0


def _tiers(
    model: ScenarioModel, numbered: tuple[MachineSection, int], cache: CacheSettings, tree: Tree
) -> tuple[TierSettings, ...]:
    machine, index = numbered
    kv, copies = _kv(model, index, machine.replica), copies_of(model, machine.replica, _served(model, index))
    block_bytes = (cache if kv is None else replace(cache, kv_bytes_per_token=kv[0])).block_bytes
    tiers, form = [], BlockForm()
    for name, section in machine.tiers.present.items():
        capacity: Capacity = section.capacity
        blocks, form = capacity.blocks, section.form(form)
        stored = copies.form(name, form)
        if capacity.size_bytes is not None:
            blocks = capacity.size_bytes // stored.bytes_of(block_bytes)
        least = 1 if name == TIERS[COMPUTE] else cache.lower_chunk_blocks
        if blocks is not None and blocks < least:
            raise UsageError(
                f"tiers.{name}.capacity is below one {'block' if least == 1 else 'chunk'}",
                where=tree.location(own_path(tree, index, ("tiers", name, "capacity"))),
                got=str(capacity),
                expected=f"at least {least * stored.bytes_of(block_bytes)} bytes",
            )
        tiers.append(TierSettings(name, blocks, section.policy or cache.policy, stored))
    return tuple(tiers)


def _handover(section: HandoverSection, network: NetworkSettings) -> HandoverSettings:
    form = BlockForm(section.kv_ratio, section.encode, section.decode)
    return lowered(HandoverSettings, section, network=network, form=form)


def _replica(replica: ReplicaSection, seed: int) -> ReplicaSettings:
    is_sglang = replica.scheduler == "sglang"
    return lowered(
        ReplicaSettings,
        replica,
        ranks=replica.dp,
        stages=replica.pp or 1,
        sglang_release=SglangRelease.of(release_of(replica)) if is_sglang else SglangRelease(),
        speculation=None if replica.speculation is None else speculation(replica.speculation, seed),
    )


def _router(section: RouterSection) -> RouterSettings:
    bound = section.affinity
    return lowered(
        RouterSettings,
        section,
        affinity=None if bound is None else AffinitySettings(bound.mode, bound.ttl),
        index_kind=section.index.kind,
        index_eviction_interval_ns=section.index.eviction_interval,
        view_interval_ns=section.view.interval,
        kv_aware_threshold_tokens=section.kv_aware_threshold,
    )


def _cache(model: ScenarioModel, tree: Tree) -> CacheSettings:
    section = model.cache
    spec = at_location(tree, ("model",), lambda: served_model(model))
    groups = at_location(tree, ("model",), lambda: cache_groups(model))
    return lowered(
        CacheSettings,
        section,
        block_size_tokens=section.block_size if groups is None else groups.layout.scheduler_block_size,
        groups=groups,
        lower_semantics=lower_semantics(model),
        lower_chunk_tokens=chunk_tokens(model),
        lower_write=lower_write(model),
        lower_lazy_tokens=lazy_tokens(model),
        lower_prefetch=storage_prefetch(model),
        kv_bytes_per_token=copies_of(model, model.replica).bytes_on_gpus(
            section.kv_bytes_per_token or spec.kv_bytes_per_token
        ),
        num_layers=spec.layers,
        lookup_ns=section.lookup_time,
        session_view=lowered(SessionViewSettings, model.session_view),
        prefix_view=lowered(PrefixViewSettings, model.prefix_view),
    )


def _movement(model: ScenarioModel) -> MovementSettings:
    policy = model.write.policy
    write = dict(WRITE_BACK)
    if isinstance(policy, dict):
        write |= {str(upper): of_edge for upper, of_edge in policy.items()}
    else:
        # No batch waits for write-backs of a lower tier.
        write = dict.fromkeys(WRITE_BACK, "through" if policy == "through-sync" else policy)
        write[TIERS[COMPUTE]] = policy
    # an engine's own tiers have no load plan: blocks have arrived, or are prefetched by the engine's rules
    prefetches = storage_prefetch(model) is not None
    return lowered(
        MovementSettings,
        model.fetch,
        write=write,
        write_selective_uses=model.write.selective_uses,
        fetch="always" if prefetches else model.fetch.policy,
        fetch_timeout_ns=model.fetch.timeout or 0,
        prefetch="none" if prefetches else model.prefetch.policy,
        prefetch_share=model.prefetch.share,
        prefetch_lead_ns=model.prefetch.lead,
        channel_choice=model.channel_choice,
        exclusive=frozenset(edge.split("->")[1] for edge in model.fetch.exclusive),
    )
