"""Construction of a cluster's replicas on their machines' caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.serving.batch_settings import BatchSettings
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.native import NativeReplica, Stepping
from kvcache_sim.serving.replica.native_rules import HandoverRules
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.serving.speculation import SpeculationRules
from kvcache_sim.serving.step_tables import StepTables


def build_replicas(
    caches: Sequence[Machine], cluster: ClusterSettings, recorder: Recorder, checks: bool
) -> list[NativeReplica]:
    """Return the replicas of these caches; ``checks`` as of ``NativeReplica``."""
    pools = any(machine.role == "prefill" for machine in cluster.machines)
    tables = StepTables()
    replicas = []
    for cache, machine in zip(caches, cluster.machines, strict=True):
        settings = _own_settings(machine)
        stepping = Stepping(tables.of(machine), _batch_settings(cache, settings))
        rules = HandoverRules.of(machine.role, cluster.handover) if pools else None
        replicas.append(NativeReplica(cache, settings, stepping, recorder, checks, rules))
    return replicas


def _own_settings(settings: MachineSettings) -> ReplicaSettings:
    replica_settings = settings.replica
    if settings.role == "prefill" and replica_settings.async_scheduling == "stop-token":
        # A prompt's end is known in advance, even if the answer elsewhere ends at a stop token.
        # The request ends with its prompt, whose length is known.
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
        track_commits=bool(cache.writes) and cache.writes[0].at_commit,
        commit_at_begin=kind.commits_at_begin,
        asks_every_step=kind.asks_every_step,
        reserve_by_step=cache.groups is not None,
        speculation=SpeculationRules.of(speculation) if speculation is not None else None,
        num_layers=cache.cache.num_layers,
    )
