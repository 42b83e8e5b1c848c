"""A replica in Python put together: its batch, its admission, its scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcache_sim.cache.machine import Machine
from kvcache_sim.model.step_time import StepTime, StepTimeTable
from kvcache_sim.serving.admission import Admitter
from kvcache_sim.serving.batch import SteppedBatch
from kvcache_sim.serving.batch_contract import Batch
from kvcache_sim.serving.batch_settings import BatchSettings
from kvcache_sim.serving.estimates import Estimates
from kvcache_sim.serving.ranks import Ranks, dummy_step_ns
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.replica.observation import Observation
from kvcache_sim.serving.replica.replica import Replica
from kvcache_sim.serving.replica.scheduler import Scheduler
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.serving.step_tables import step_table

if TYPE_CHECKING:
    from kvcache_sim.serving.engine_scheduler.contract import EngineScheduler


def python_replica(
    cache: Machine,
    settings: MachineSettings,
    batch_settings: BatchSettings,
    milestones: Milestones,
    observed: Observation,
) -> AnyReplica:
    """Return the replica of a machine that the core does not serve, or the reference of one that it does."""
    replica_settings = settings.replica
    if replica_settings.scheduler != "kvsim":
        from kvcache_sim.serving.engine_scheduler.replica import EngineReplica, StepDurations

        durations = StepDurations.of_batch(settings.step_time, batch_settings)
        if replica_settings.scheduler == "vllm" and replica_settings.async_scheduling != "none":
            most = (batch_settings.max_num_batched_tokens, replica_settings.most_decode_tokens)
            durations = replace(durations, table=settings.step_time.table(*most))
        engine = _engine_scheduler(replica_settings, cache, milestones)
        if replica_settings.stages > 1:
            from kvcache_sim.serving.engine_scheduler.pipeline import PipelinedReplica

            return PipelinedReplica(cache, replica_settings, durations, milestones, engine, observed.checks)
        return EngineReplica(cache, replica_settings, durations, milestones, engine, observed.checks)
    batch = _batch(
        cache,
        batch_settings,
        settings.step_time,
        replica_settings.most_decode_tokens,
        observed,
        in_step=replica_settings.ranks > 1,
    )
    estimates = Estimates(cache, settings.step_time, replica_settings.max_num_batched_tokens)
    admitter = Admitter(cache, milestones.outcomes, estimates, replica_settings.lost_blocks)
    scheduler = Scheduler(replica_settings, cache, admitter, batch, milestones)
    return Replica(cache, replica_settings, batch, scheduler, milestones, observed.checks)


def _engine_scheduler(
    settings: ReplicaSettings, machine: Machine, milestones: Milestones
) -> EngineScheduler[Any]:
    """Return the reference of an engine's own scheduler."""
    if settings.scheduler == "vllm":
        from kvcache_sim.serving.vllm.engine import VllmEngine

        return VllmEngine(settings, machine, milestones)
    from kvcache_sim.serving.sglang.engine import SglangEngine

    return SglangEngine(settings, machine, milestones)


def _batch(
    machine: Machine,
    settings: BatchSettings,
    step_time: StepTime,
    most_decode_tokens: int,
    observed: Observation,
    in_step: bool,
) -> Batch:
    """Return the native batch where the step-time model is a table and stretches are wanted."""
    table = step_time.table(settings.max_num_batched_tokens, most_decode_tokens)
    if table is None:
        return SteppedBatch(settings, step_time, machine.groups)
    native = observed.stretches and machine.offers is None  # what a step computed is offered at its end
    if native and settings.speculation is None and not in_step:
        return _native_batch(settings, table)
    return SteppedBatch(settings, table, machine.groups)


def _native_batch(settings: BatchSettings, table: StepTimeTable) -> Batch:
    """Return the native batch, which runs unchanged iterations in stretches."""
    from kvcache_sim import _core

    return _core.Batch(
        step_table(table),
        settings.block_size_tokens,
        settings.max_num_batched_tokens,
        (settings.step_overhead_ns, settings.least_step_ns),
        settings.late_ends,
        settings.cache_enabled,
        settings.cache_output,
        settings.track_commits,
        settings.commit_at_begin,
        settings.asks_every_step,
        settings.room_by_step,
        settings.num_layers,
    )


def step_together(replicas: Sequence[AnyReplica], cluster: ClusterSettings) -> None:
    """Let the machines that are ranks of one engine step together."""
    size = cluster.machines[0].replica.ranks
    for start in range(0, len(replicas), size):
        ranks = [replica for replica in replicas[start : start + size] if isinstance(replica, Replica)]
        together = Ranks(ranks, ranks[0].engine, dummy_step_ns(cluster.machines[start]))
        for rank in ranks:
            rank.step_with(together)
