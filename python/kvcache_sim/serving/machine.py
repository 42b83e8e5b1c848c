"""A replica put together on one machine's cache: its batch, its admission, its scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.model.step_time import StepBatch, StepTime, StepTimeTable
from kvcache_sim.serving.admission import Admitter
from kvcache_sim.serving.batch import BatchSettings, SteppedBatch
from kvcache_sim.serving.batch_contract import Batch
from kvcache_sim.serving.estimates import Estimates
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.ranks import Ranks
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.replica.scheduler import Scheduler
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.serving.speculation import SpeculationRules
from kvcache_sim.values import dataclass

if TYPE_CHECKING:
    from kvcache_sim import _core
    from kvcache_sim.serving.engine_scheduler.contract import EngineScheduler
    from kvcache_sim.serving.replica.native_rules import HandoverRules


@dataclass(frozen=True, slots=True)
class Observation:
    """How a replica is run and watched; none of it changes a result.

    ``stretches``: unchanged iterations run in one native call; ``checks``: the store's invariants are checked
    at every boundary; ``records_all``: iterations, transfers, evictions and milestones are recorded.
    """

    stretches: bool
    checks: bool
    records_all: bool


def native_batch(settings: BatchSettings, table: StepTimeTable) -> Batch:
    """Return the native batch, which runs unchanged iterations in stretches."""
    from kvcache_sim import _core

    return _core.Batch(
        _step_table(table),
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


def _step_table(table: StepTimeTable) -> _core.StepTable:
    """Return a step-time model's integers as the core reads them."""
    from kvcache_sim import _core

    coefficients = [table.pair_half_fs, table.kv_decode_fs, table.kv_mixed_fs, table.sequence_fs]
    coefficients += [table.past_fs, table.spread_decode_fs, table.spread_mixed_fs]
    coefficients += [table.scan_fs, table.idle_fs]
    least = (table.least_kv_tokens, table.least_query_tokens)
    return _core.StepTable(table.base_ns, table.decode_base_ns, coefficients, least, table.longest_fs)


def build_replicas(
    caches: Sequence[Machine],
    cluster: ClusterSettings,
    channels: Channels,
    outcomes: Sequence[Outcomes],
    recorder: Recorder,
    observed: Observation,
) -> list[AnyReplica]:
    """Return the replicas that serve from these caches; where prompts are handed over, all of one kind."""
    from kvcache_sim.serving.replica.native_rules import HandoverRules, core_hands_over, core_serves

    native = [
        observed.stretches and told.keys is None and core_serves(cache, machine)
        for cache, machine, told in zip(caches, cluster.machines, outcomes, strict=True)
    ]
    pools = any(machine.role == "prefill" for machine in cluster.machines)
    if pools and not (all(native) and core_hands_over(cluster.handover, channels)):
        native = [False] * len(native)
    replicas: list[AnyReplica] = []
    tables = _StepTables()
    for cache, machine, told, in_core in zip(caches, cluster.machines, outcomes, native, strict=True):
        if in_core:
            rules = HandoverRules.of(machine.role, cluster.handover) if pools else None
            table = tables.of(machine)
            replicas.append(_native_replica(cache, machine, table, recorder, observed.checks, rules))
        else:
            replicas.append(_replica(cache, machine, told, recorder, observed))
    _in_step(replicas, cluster)
    return replicas


def _in_step(replicas: Sequence[AnyReplica], cluster: ClusterSettings) -> None:
    """Let the machines that are ranks of one engine step together."""
    size = cluster.machines[0].replica.ranks
    if size == 1:
        return
    for start in range(0, len(replicas), size):
        ranks = [replica for replica in replicas[start : start + size] if isinstance(replica, Replica)]
        settings = cluster.machines[start]
        dummy_ns = settings.step_time.step(StepBatch((), 1, 0, 0)) + settings.replica.step_overhead_ns
        together = Ranks(ranks, ranks[0].engine, dummy_ns)
        for rank in ranks:
            rank.step_with(together)


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


class _StepTables:
    """The core's tables of step times: machines whose table is one object share the core's too."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[StepTimeTable, _core.StepTable]] = {}

    def of(self, settings: MachineSettings) -> _core.StepTable:
        """Return that of a machine whose step-time model is a table."""
        replica = settings.replica
        table = settings.step_time.table(replica.max_num_batched_tokens, replica.most_decode_tokens)
        assert table is not None, "the core serves step times that are a table"
        if id(table) not in self._made:
            self._made[id(table)] = table, _step_table(table)
        return self._made[id(table)][1]


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


def _replica(
    cache: Machine,
    settings: MachineSettings,
    outcomes: Outcomes,
    recorder: Recorder,
    observed: Observation,
) -> AnyReplica:
    replica_settings = _own_settings(settings)
    batch_settings = _batch_settings(cache, replica_settings)
    if replica_settings.scheduler != "kvsim":
        milestones = Milestones(cache.number, cache.store, recorder, outcomes, observed.records_all)
        from kvcache_sim.serving.engine_scheduler.replica import EngineReplica, StepDurations

        durations = StepDurations.of_batch(settings.step_time, batch_settings)
        engine = _engine_scheduler(replica_settings, cache, milestones)
        return EngineReplica(cache, replica_settings, durations, milestones, engine, observed.checks)
    batch = make_batch(
        cache,
        batch_settings,
        settings.step_time,
        replica_settings.most_decode_tokens,
        observed,
        in_step=replica_settings.ranks > 1,
    )
    estimates = Estimates(cache, settings.step_time, replica_settings.max_num_batched_tokens)
    milestones = Milestones(cache.number, cache.store, recorder, outcomes, observed.records_all)
    admitter = Admitter(cache, outcomes, estimates, replica_settings.lost_blocks)
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


def make_batch(
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
    if observed.stretches and settings.speculation is None and not in_step:
        return native_batch(settings, table)
    return SteppedBatch(settings, table, machine.groups)
