"""Recording of an engine's schedule during a simulation, and its figures afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.metrics.schedule import free_queue_figures, schedule_figures
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.workload.trace import Trace


def write_down(replicas: Sequence[NativeReplica]) -> None:
    """Enable recording of the schedule on each replica; UsageError for kvsim's own scheduler."""
    for replica in replicas:
        if replica.settings.scheduler == "kvsim":
            hint = "set replica.scheduler=vllm or sglang"
            what = "kvsim's own scheduler writes no schedule down"
            raise UsageError(what, "--schedule-digests", hint=hint)
        replica.log_schedule()


def written_down(replicas: Sequence[NativeReplica], trace: Trace) -> dict[str, Any]:
    """Return the figures and digests of the schedule, for several machines one set each."""
    by_machine = [_figures(replica, trace) for replica in replicas]
    if len(by_machine) == 1:
        return by_machine[0]
    return {"by_machine": [{"machine": k, **figures} for k, figures in enumerate(by_machine)]}


def _figures(replica: NativeReplica, trace: Trace) -> dict[str, Any]:
    log = replica.schedule()
    assert log is not None, "recording starts before the first step"
    figures = schedule_figures(log, replica.store.eviction_counts(COMPUTE).evicted_blocks)
    if replica.settings.scheduler == "vllm" and replica.cache.groups is None:
        assert isinstance(replica.store, _core.PoolStore | _core.TieredPoolStore | _core.GroupStore)
        queue = [key[1] if isinstance(key, tuple) else key for key in replica.store.free_queue()]
        figures |= free_queue_figures(queue, trace, replica.cache.block_size_tokens)
    return figures
