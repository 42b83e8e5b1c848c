"""A replica put together on one machine's cache: its batch, its admission, its scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from kvcache_sim.cache.admission import ADMISSION
from kvcache_sim.cache.machine import Machine
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
from kvcache_sim.serving.settings import MachineSettings


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


def build_replica(
    cache: Machine, settings: MachineSettings, outcomes: Outcomes, recorder: Recorder, stretches: bool
) -> Replica:
    """Return the replica that serves from one machine's cache."""
    replica_settings = settings.replica
    if settings.role == "prefill" and replica_settings.async_scheduling == "stop-token":
        # A prompt's end is foreseen, whatever will end its answer elsewhere.
        # It ends with the prompt, whose length is known.
        replica_settings = replace(replica_settings, async_scheduling="length")
    asynchronous = replica_settings.async_scheduling != "none"
    writes = cache.writes
    batch_settings = BatchSettings(
        block_size_tokens=cache.cache.block_size_tokens,
        max_num_batched_tokens=replica_settings.max_num_batched_tokens,
        step_overhead_ns=0 if asynchronous else replica_settings.step_overhead_ns,
        least_step_ns=replica_settings.step_overhead_ns if asynchronous else 0,
        late_ends=replica_settings.async_scheduling == "stop-token",
        cache_enabled=cache.cache.enabled,
        cache_output=cache.cache.cache_output,
        track_commits=bool(writes) and writes[0].at_commit,
        commit_at_begin=cache.cache.semantics == "vllm",
        asks_every_step=cache.cache.semantics == "sglang",
    )
    batch = make_batch(batch_settings, settings.step_time, replica_settings.max_num_seqs, stretches)
    estimates = Estimates(cache, settings.step_time, replica_settings.max_num_batched_tokens)
    admitter = Admitter(cache, outcomes, estimates)
    parts = (cache.store, cache.mover, admitter, batch)
    engine = cache.mover.engine
    replica = Replica(cache.number, (replica_settings, cache.cache), parts, engine, recorder, outcomes)
    replica.tiers = len(cache.tiers)
    replica.kept_free_blocks = cache.kept_free_blocks
    replica.entrance.writes = list(writes)
    window = cache.cache.scheduler_aware_window
    if window:
        replica.entrance.look_ahead = LookAhead(cache.store, window, cache.cache.matchable_blocks)
    if cache.cache.admission != "all":
        admission = ADMISSION.make(cache.cache.admission)
        replica.keeping = Keeping(admission, cache.store, cache.cache.block_size_tokens)
    if replica_settings.duplicate_prefill == "wait":
        replica.entrance.duplicates = Duplicates(outcomes.trace, cache.cache.block_size_tokens)
    replica.prefetcher = cache.prefetcher
    if cache.prefetcher is not None and "queued" in cache.prefetcher.policy.occasions:
        replica.entrance.waiting.held_back = replica.held_back
    return replica


def make_batch(settings: BatchSettings, step_time: StepTime, max_num_seqs: int, stretches: bool) -> Batch:
    """Return the native batch where the step-time model is a table and stretches are wanted."""
    table = step_time.table(settings.max_num_batched_tokens, max_num_seqs)
    if table is None:
        return SteppedBatch(settings, step_time)
    return native_batch(settings, table) if stretches else SteppedBatch(settings, table)
