"""A replica put together on one machine's cache: its batch, its admission, its scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.serving.batch_settings import BatchSettings
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.observation import Observation
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.serving.speculation import SpeculationRules
from kvcache_sim.serving.step_tables import StepTables

if TYPE_CHECKING:
    from kvcache_sim import _core
    from kvcache_sim.serving.replica.native_rules import HandoverRules


def build_replicas(
    caches: Sequence[Machine],
    cluster: ClusterSettings,
    channels: Channels,
    outcomes: Sequence[Outcomes],
    recorder: Recorder,
    observed: Observation,
) -> list[AnyReplica]:
    """Return the replicas of these caches, all of one kind where machines hand over or read others."""
    from kvcache_sim.serving.replica.native_rules import HandoverRules, core_serves

    native = [observed.stretches and core_serves(cache) for cache in caches]
    pools = any(machine.role == "prefill" for machine in cluster.machines)
    reads = any(cache.remote is not None for cache in caches)
    ranks = cluster.machines[0].replica.ranks
    if (pools or reads or ranks > 1) and not all(native):
        native = [False] * len(native)
    if channels.by_layer:
        if all(native) and (pools or any(len(cache.tiers) > 1 for cache in caches)):
            placed = channels.serve_in_core()
            for cache in caches:
                cache.mover.go_over(placed)
        else:
            native = [
                ok and not pools and len(cache.tiers) == 1 for ok, cache in zip(native, caches, strict=True)
            ]
    replicas: list[AnyReplica] = []
    tables = StepTables()
    for cache, machine, told, in_core in zip(caches, cluster.machines, outcomes, native, strict=True):
        if in_core:
            rules = HandoverRules.of(machine.role, cluster.handover) if pools else None
            table = tables.of(machine)
            replicas.append(_native_replica(cache, machine, table, recorder, observed.checks, rules))
        else:
            from kvcache_sim.serving.replica.in_python import python_replica
            from kvcache_sim.serving.replica.milestones import Milestones

            own = replace(machine, replica=_own_settings(machine))
            batch = _batch_settings(cache, own.replica)
            milestones = Milestones(cache.number, cache.store, recorder, told, observed.records_all)
            replicas.append(python_replica(cache, own, batch, milestones, observed))
    if ranks > 1 and not all(native):
        from kvcache_sim.serving.replica.in_python import step_together

        step_together(replicas, cluster)
    return replicas


def _own_settings(settings: MachineSettings) -> ReplicaSettings:
    replica_settings = settings.replica
    if settings.role == "prefill" and replica_settings.async_scheduling == "stop-token":
        # A prompt's end is foreseen, whatever will end its answer elsewhere.
        # It ends with the prompt, whose length is known.
        return replace(replica_settings, async_scheduling="length")
    return replica_settings


def _batch_settings(cache: Machine, replica_settings: ReplicaSettings) -> BatchSettings:
    speculation = replica_settings.speculation
    asynchronous = replica_settings.async_scheduling != "none"
    kind = store_kind(cache.cache)
    return BatchSettings(
        block_size_tokens=cache.cache.block_size_tokens,
        max_num_batched_tokens=replica_settings.max_num_batched_tokens,
        step_overhead_ns=0 if asynchronous else replica_settings.step_overhead_ns,
        least_step_ns=replica_settings.step_overhead_ns if asynchronous else 0,
        late_ends=replica_settings.async_scheduling == "stop-token",
        cache_enabled=cache.cache.enabled,
        cache_output=cache.cache.cache_output,
        track_commits=cache.writes is not None and cache.writes.at_commit,
        commit_at_begin=kind.commits_at_begin,
        asks_every_step=kind.asks_every_step,
        room_by_step=cache.groups is not None,
        speculation=SpeculationRules.of(speculation) if speculation is not None else None,
        num_layers=cache.cache.num_layers,
    )


def _native_replica(
    cache: Machine,
    settings: MachineSettings,
    table: _core.StepTable,
    recorder: Recorder,
    checks: bool,
    handover: HandoverRules | None,
) -> AnyReplica:
    from kvcache_sim.serving.replica.native import NativeReplica

    replica_settings = _own_settings(settings)
    steps = table, _batch_settings(cache, replica_settings)
    return NativeReplica(cache, replica_settings, steps, recorder, checks, handover)
