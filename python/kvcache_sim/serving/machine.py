"""A machine put together: its store, its channels, its batch, its replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from kvcache_sim.cache.admission import ADMISSION
from kvcache_sim.cache.channel_choice import CHANNEL_CHOICE
from kvcache_sim.cache.moves import AnyChannel, Mover
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import BlockStore
from kvcache_sim.cache.write import WRITE
from kvcache_sim.engine import Engine
from kvcache_sim.model.step_time import StepTime, StepTimeTable
from kvcache_sim.serving.admission import Admitter
from kvcache_sim.serving.batch import Batch, BatchSettings, SteppedBatch
from kvcache_sim.serving.duplicates import Duplicates
from kvcache_sim.serving.estimates import Estimates
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.queue.look_ahead import LookAhead
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.replica.keeping import Keeping
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.tiers import LOAD_EDGES, WRITE_EDGES

#: Makes the store of a machine from its tiers and whether each writes its victims down.
MakeStore = Callable[[Sequence[TierSettings], list[bool]], BlockStore]


def native_batch(settings: BatchSettings, table: StepTimeTable) -> Batch:
    """Return the native batch, which runs unchanged iterations in stretches."""
    from kvcache_sim import _core

    coefficients = [table.pair_half_fs, table.kv_decode_fs, table.kv_mixed_fs, table.sequence_fs]
    coefficients += [table.past_fs, table.spread_decode_fs, table.spread_mixed_fs, table.scan_fs]
    least = (table.least_kv_tokens, table.least_query_tokens)
    native = _core.Batch(
        _core.StepTable(table.base_ns, table.decode_base_ns, coefficients, least, table.longest_fs),
        settings.block_size_tokens,
        settings.max_num_batched_tokens,
        (settings.step_overhead_ns, settings.least_step_ns),
        settings.late_ends,
        settings.cache_enabled,
        settings.cache_output,
        settings.track_commits,
        settings.commit_at_begin,
        settings.asks_every_step,
    )
    return cast(Batch, native)


def build_machine(
    machine: int,
    cluster: ClusterSettings,
    make_store: MakeStore,
    channels: dict[str, AnyChannel],
    stretches: bool,
    surroundings: tuple[Engine, Recorder, Outcomes],
) -> Replica:
    """Return the replica of one machine, wired to its store and channels."""
    engine, recorder, outcomes = surroundings
    settings = cluster.machines[machine]
    present = [tier.name for tier in settings.tiers]
    movement = cluster.movement
    writes = [
        WRITE.make(movement.write.get(name, "back"), level, movement)
        for level, name in enumerate(present[:-1])
    ]
    write_back = [policy.writes_back for policy in writes] + [False]
    store = make_store(settings.tiers, write_back)
    edges = [edge for edge in (*WRITE_EDGES, *LOAD_EDGES) if edge in settings.edge_channels]
    local = {edge: channels[settings.edge_channels[edge]] for edge in edges}
    mover = Mover(machine, store, engine, local, (cluster.cache, cluster.movement))
    if settings.edge_rails:
        mover.choice = CHANNEL_CHOICE.make(movement.channel_choice)
        mover.rails = {e: {n: channels[n] for n in names} for e, names in settings.edge_rails.items()}
    replica_settings = settings.replica
    if settings.role == "prefill" and replica_settings.async_scheduling == "stop-token":
        # A prompt's end is foreseen, whatever will end its answer elsewhere.
        # It ends with the prompt, whose length is known.
        replica_settings = replace(replica_settings, async_scheduling="length")
    asynchronous = replica_settings.async_scheduling != "none"
    batch_settings = BatchSettings(
        block_size_tokens=cluster.cache.block_size_tokens,
        max_num_batched_tokens=replica_settings.max_num_batched_tokens,
        step_overhead_ns=0 if asynchronous else replica_settings.step_overhead_ns,
        least_step_ns=replica_settings.step_overhead_ns if asynchronous else 0,
        late_ends=replica_settings.async_scheduling == "stop-token",
        cache_enabled=cluster.cache.enabled,
        cache_output=cluster.cache.cache_output,
        track_commits=bool(writes) and writes[0].at_commit,
        commit_at_begin=cluster.cache.semantics == "vllm",
        asks_every_step=cluster.cache.semantics == "sglang",
    )
    batch = make_batch(batch_settings, settings.step_time, replica_settings.max_num_seqs, stretches)
    estimates = Estimates(mover, cluster.cache, settings.step_time, replica_settings.max_num_batched_tokens)
    admitter = Admitter(store, mover, (cluster.cache, cluster.movement), outcomes, estimates)
    admitter.expires = any(tier.policy.partition(":")[0] == "ttl" for tier in settings.tiers)
    parts = (store, mover, admitter, batch)
    replica = Replica(machine, (replica_settings, cluster.cache), parts, engine, recorder, outcomes)
    replica.tiers = len(present)
    replica.kept_free_blocks = int(
        cluster.cache.semantics == "sglang" and cluster.cache.block_size_tokens > 1
    )
    replica.entrance.writes = writes
    window = cluster.cache.scheduler_aware_window
    if window:
        replica.entrance.look_ahead = LookAhead(store, window, admitter.matchable_blocks)
    if cluster.cache.admission != "all":
        admission = ADMISSION.make(cluster.cache.admission)
        replica.keeping = Keeping(admission, store, cluster.cache.block_size_tokens)
    mover.writes = writes
    if replica_settings.duplicate_prefill == "wait":
        replica.entrance.duplicates = Duplicates(outcomes.trace, cluster.cache.block_size_tokens)
    return replica


def make_batch(settings: BatchSettings, step_time: StepTime, max_num_seqs: int, stretches: bool) -> Batch:
    """Return the native batch where the step-time model is a table and stretches are wanted."""
    table = step_time.table(settings.max_num_batched_tokens, max_num_seqs)
    if table is None:
        return SteppedBatch(settings, step_time)
    return native_batch(settings, table) if stretches else SteppedBatch(settings, table)
