"""Writing down an engine's schedule while a simulation runs, and its figures afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.schedule import free_queue_figures, schedule_figures
from kvcache_sim.serving.engine_scheduler.replica import EngineReplica
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.vllm.blocks import BlockPool
from kvcache_sim.tiers import COMPUTE
from kvcache_sim.workload.trace import Trace


def write_down(replicas: Sequence[AnyReplica]) -> NativeReplica | EngineReplica[Any]:
    """Let the one replica write its schedule down; UsageError for several, and for kvsim's own scheduler."""
    where = "--schedule-digests"
    if len(replicas) != 1:
        raise UsageError("a schedule is one machine's", where, f"{len(replicas)} machines", "one machine")
    [replica] = replicas
    if replica.settings.scheduler == "kvsim":
        hint = "set replica.scheduler=vllm or sglang"
        raise UsageError("kvsim's own scheduler writes no schedule down", where, hint=hint)
    assert isinstance(replica, NativeReplica | EngineReplica)
    replica.log_schedule()
    return replica


def written_down(replica: NativeReplica | EngineReplica[Any], trace: Trace) -> dict[str, Any] | None:
    """Return the figures and digests of a schedule that was written down."""
    log = replica.schedule()
    if log is None:
        return None
    figures = schedule_figures(log, replica.store.losses(COMPUTE).evicted_blocks)
    if replica.settings.scheduler == "vllm" and replica.cache.groups is None:
        queue = cast(BlockPool, replica.store).free_queue()
        figures |= free_queue_figures(queue, trace, replica.cache.block_size_tokens)
    return figures
