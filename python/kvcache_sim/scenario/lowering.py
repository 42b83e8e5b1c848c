"""A checked scenario lowered to the frozen settings of the floors below."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from kvcache_sim.cache.settings import (
    WRITE_BACK,
    CacheSettings,
    MovementSettings,
    PrefixViewSettings,
    SessionViewSettings,
    TierSettings,
)
from kvcache_sim.errors import UsageError
from kvcache_sim.model.adjusted import WithLaunchTime, WithSequenceTime
from kvcache_sim.model.step_time import StepTime, zero_step_time
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.scenario.cache_groups import cache_groups
from kvcache_sim.scenario.channels import Wiring
from kvcache_sim.scenario.engine_tiers import lower_semantics, lower_write, storage_prefetch
from kvcache_sim.scenario.fleet import membership_plan
from kvcache_sim.scenario.fleet_events import fleet_events
from kvcache_sim.scenario.host import with_host
from kvcache_sim.scenario.machines import own_path
from kvcache_sim.scenario.models_section import model_of_machine, models_settings
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.replica_section import ReplicaSection
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.served_model import served_model
from kvcache_sim.scenario.shared_pool import pool_settings, with_pool
from kvcache_sim.scenario.slow_channels import with_slow_channels
from kvcache_sim.scenario.speculation import speculation
from kvcache_sim.scenario.tenants_section import tenancy
from kvcache_sim.scenario.validation import at_place
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.serving.queue import served_as
from kvcache_sim.serving.settings import (
    ClusterSettings,
    HandoverSettings,
    MachineSettings,
    ReplicaSettings,
    RouterSettings,
)
from kvcache_sim.tiers import COMPUTE, TIERS


def lower(
    model: ScenarioModel, machines: tuple[MachineSection, ...], wiring: Wiring, tree: Tree
) -> ClusterSettings:
    """Return the settings that the simulation takes: integers in tokens, blocks, bytes and ns.

    ``model.model`` must be named. Raises UsageError for an unknown model or step-time set and for a tier of
    less than one block.
    """
    wiring = with_pool(wiring, model.cluster.pool, tree)
    wiring = with_slow_channels(wiring, fleet_events(model, tree))
    cache = _cache(model, tree)
    block_bytes = cache.block_bytes
    step_times: dict[tuple[str, ...], StepTime] = {}
    replicas = [
        at_place(tree, own_path(tree, index, ("replica", "host")), partial(with_host, machine.replica))
        for index, machine in enumerate(machines)
    ]
    launches = [_launch_ns(model, index, replica) for index, replica in enumerate(replicas)]
    for index, replica in enumerate(replicas):
        kind = _step_time_kind(replica, launches[index])
        if kind not in step_times:
            path = own_path(tree, index, ("replica", "step_time"))
            step_times[kind] = at_place(tree, path, partial(_step_time, replica, launches[index]))
    return ClusterSettings(
        machines=tuple(
            MachineSettings(
                tiers=_tiers((machine, index), model.cache.policy, _block_bytes(model, index, cache), tree),
                step_time=step_times[_step_time_kind(replicas[index], launches[index])],
                replica=at_place(
                    tree,
                    own_path(tree, index, ("replica", "host")),
                    partial(_replica, replicas[index], model.seed),
                ),
                edge_channels=wiring.edge_channels[index],
                edge_rails=wiring.edge_rails[index],
                role=machine.role,
                kv=_kv(model, index),
            )
            for index, machine in enumerate(machines)
        ),
        channels=wiring.channels,
        network=wiring.network,
        cache=cache,
        movement=_movement(model),
        router=_router(model),
        handover=_handover(model, wiring),
        pool=pool_settings(model.cluster.pool, model.cache.policy, block_bytes, tree),
        membership=membership_plan(model, tree, (block_bytes, cache.block_size_tokens)),
        tenants=tenancy(model.tenants),
        models=models_settings(model.models),
        seed=model.seed,
    )


def _kv(model: ScenarioModel, machine: int) -> tuple[int, int] | None:
    """Return the KV bytes of a token and the layers of a machine's own model, None where it has none."""
    served = model_of_machine(model.models, machine)
    if served is None or served.model is None:
        return None
    spec = served_model(replace(model, model=served.model))
    return spec.kv_bytes_per_token, spec.layers


def _block_bytes(model: ScenarioModel, machine: int, cache: CacheSettings) -> int:
    kv = _kv(model, machine)
    return cache.block_bytes if kv is None else cache.block_size_tokens * kv[0]


def _launch_ns(model: ScenarioModel, machine: int, replica: ReplicaSection) -> int:
    """Return the host's time to launch the kernels of all layers of a machine's model, one by one."""
    if not replica.launch_per_layer:
        return 0
    own = _kv(model, machine)
    return replica.launch_per_layer * (served_model(model).layers if own is None else own[1])


def _step_time_kind(replica: ReplicaSection, launch_ns: int) -> tuple[str, ...]:
    """Return what tells step-time models apart: the name; without service time, how far the zeros reach."""
    if replica.instant:
        return ("instant", str(replica.max_num_batched_tokens), str(replica.max_num_seqs))
    return (replica.step_time, replica.links or "", str(_sequence_ns(replica)), str(launch_ns))


def _step_time(replica: ReplicaSection, launch_ns: int) -> StepTime:
    """Return the step-time model of a replica, or with ``instant`` the one without time."""
    if replica.instant:
        return zero_step_time(replica.max_num_batched_tokens, replica.max_num_seqs)
    found = load_step_time(replica.step_time, replica.links)
    found = WithLaunchTime(found, launch_ns) if launch_ns else found
    host_ns = _sequence_ns(replica)
    return WithSequenceTime(found, host_ns) if host_ns else found


def _sequence_ns(replica: ReplicaSection) -> int:
    """Return the host's time a sequence between two steps; asynchronous scheduling hides it."""
    return replica.step_overhead_per_sequence if replica.async_scheduling == "none" else 0


def _tiers(
    numbered: tuple[MachineSection, int], policy: str, block_bytes: int, tree: Tree
) -> tuple[TierSettings, ...]:
    machine, index = numbered
    tiers = []
    for name, section in machine.tiers.present.items():
        capacity: Capacity = section.capacity
        blocks = capacity.blocks
        if capacity.size_bytes is not None:
            blocks = capacity.size_bytes // block_bytes
            if blocks == 0:
                raise UsageError(
                    f"tiers.{name}.capacity is below one block",
                    where=tree.place(own_path(tree, index, ("tiers", name, "capacity"))),
                    got=str(capacity),
                    expected=f"at least {block_bytes} bytes",
                )
        tiers.append(TierSettings(name, blocks, section.policy or policy))
    return tuple(tiers)


def _replica(replica: ReplicaSection, seed: int) -> ReplicaSettings:
    return ReplicaSettings(
        max_num_batched_tokens=replica.max_num_batched_tokens,
        max_num_seqs=replica.max_num_seqs,
        max_model_len=replica.max_model_len,
        instant=replica.instant,
        queue_order=served_as(replica.queue_order),
        scheduler=replica.scheduler,
        watermark=replica.watermark,
        reserve_full_isl=replica.reserve_full_isl,
        long_prefill_token_threshold=replica.long_prefill_token_threshold,
        schedule_policy=replica.schedule_policy,
        max_prefill_tokens=replica.max_prefill_tokens,
        enable_mixed_chunk=replica.enable_mixed_chunk,
        schedule_conservativeness=replica.schedule_conservativeness,
        duplicate_prefill=replica.duplicate_prefill,
        ranks=replica.dp,
        stages=replica.pp or 1,
        speculation=speculation(replica.speculation, seed),
        step_overhead_ns=replica.step_overhead,
        async_scheduling=replica.async_scheduling,
        client_offset_ns=replica.client_offset,
        client_offset_per_token_ns=replica.client_offset_per_token,
        copy_submit_ns=replica.copy_submit,
        copy_gpu_share=replica.copy_gpu_share,
    )


def _router(model: ScenarioModel) -> RouterSettings:
    section = model.router
    return RouterSettings(
        policy=section.policy,
        load_threshold=section.load_threshold,
        overlap_weight=section.overlap_weight,
        cache_threshold=section.cache_threshold,
        balance_abs_threshold=section.balance_abs_threshold,
        balance_rel_threshold=section.balance_rel_threshold,
        index_blocks=section.index_blocks,
        index_delay_ns=section.index_delay,
        index_kind=section.index.kind,
        index_eviction_interval_ns=section.index.eviction_interval,
        view_interval_ns=section.view.interval,
        scorers=dict(section.scorers),
        temperature=section.temperature,
        kv_aware_threshold_tokens=section.kv_aware_threshold,
        load_weight=section.load_weight,
        max_load_skew=section.max_load_skew,
    )


def _handover(model: ScenarioModel, wiring: Wiring) -> HandoverSettings:
    section = model.handover
    return HandoverSettings(
        section.path, section.transfer, section.first_token, section.router, wiring.handovers
    )


def _cache(model: ScenarioModel, tree: Tree) -> CacheSettings:
    section = model.cache
    spec = at_place(tree, ("model",), lambda: served_model(model))
    groups = at_place(tree, ("model",), lambda: cache_groups(model))
    return CacheSettings(
        enabled=section.enabled,
        block_size_tokens=section.block_size if groups is None else groups.layout.scheduler_block_size,
        groups=groups,
        semantics=section.semantics,
        lower_semantics=lower_semantics(model),
        lower_write=lower_write(model),
        lower_prefetch=storage_prefetch(model),
        policy=section.policy,
        cache_output=section.cache_output,
        admission=section.admission,
        touch=section.touch,
        eviction_batch_blocks=section.eviction_batch_blocks,
        full_hit=section.full_hit,
        kv_bytes_per_token=section.kv_bytes_per_token or spec.kv_bytes_per_token,
        num_layers=spec.layers,
        lookup_ns=section.lookup_time,
        discard_on_finish=section.discard_on_finish,
        scheduler_aware_window=section.scheduler_aware_window,
        accounting=section.accounting,
        session_view=SessionViewSettings(model.session_view.max_sessions, model.session_view.ttl),
        prefix_view=PrefixViewSettings(
            model.prefix_view.min_tokens, model.prefix_view.min_seen, model.prefix_view.max_tokens
        ),
    )


def _movement(model: ScenarioModel) -> MovementSettings:
    policy = model.write.policy
    write = dict(WRITE_BACK)
    if isinstance(policy, dict):
        write |= {str(upper): own for upper, own in policy.items()}
    else:
        # No batch waits for what a lower tier itself writes on.
        write = dict.fromkeys(WRITE_BACK, "through" if policy == "through-sync" else policy)
        write[TIERS[COMPUTE]] = policy
    # an engine's own tiers know of no plan: what is to come has come, or comes ahead by the engine's rules
    own = storage_prefetch(model) is not None
    return MovementSettings(
        write=write,
        write_selective_uses=model.write.selective_uses,
        fetch="always" if own else model.fetch.policy,
        fetch_timeout_ns=model.fetch.timeout or 0,
        prefetch="none" if own else model.prefetch.policy,
        prefetch_share=model.prefetch.share,
        prefetch_lead_ns=model.prefetch.lead,
        layer_pipelining=model.fetch.layer_pipelining,
        read_buffer_layers=model.fetch.read_buffer_layers,
        lookup=model.fetch.lookup,
        remote_disk=model.fetch.remote_disk,
        channel_choice=model.channel_choice,
        exclusive=frozenset(edge.split("->")[1] for edge in model.fetch.exclusive),
    )
