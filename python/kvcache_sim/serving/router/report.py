"""Reports of engines: waiting and running requests, and the use of the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kvcache_sim import _core
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Occupancy
from kvcache_sim.serving.router.in_core import Clock

#: Values per machine in a native sample: its counts, then the use of the blocks of its GPU.
_WIDTH = 8
_WAITING, _RUNNING, _LOADING, _FREE, _CACHED = 0, 1, 2, 4, 6


def published_by(replicas: Sequence[NativeReplica]) -> Callable[[], Occupancy]:
    """Return a function that reads the load that every engine published last; cost: one native call.

    Engines publish at the end of a step: running requests and KV use without the requests that finished,
    waiting requests as the last schedule left them (vLLM's gauges; SGLang's, by its own scheduler, at every
    40th step that only decodes). A request whose KV has not arrived counts as waiting. From this call on the
    machines run their steps one by one, which changes no result.
    """
    capacity = [replica.store.occupancy(0).capacity_blocks for replica in replicas]
    sampled = _core.Sampled([replica.core for replica in replicas], [1] * len(replicas))
    sampled.publish_load()

    def ask() -> Occupancy:
        waiting, running, used = zip(*sampled.loads(), strict=True)
        return Occupancy([*waiting], [*running], [u / c for u, c in zip(used, capacity, strict=True)])

    return ask


def counts_of(replicas: Sequence[NativeReplica], clock: Clock) -> Callable[[], Occupancy]:
    """Return a function that reads the current counts of every engine; cost: one native call.

    Every request in the queue counts as waiting from its arrival on, as vLLM's data-parallel balancer counts,
    and a request whose KV has not arrived. Results do not depend on the reads.
    """
    capacity = np.array([replica.store.occupancy(0).capacity_blocks for replica in replicas], np.float64)
    sampled = _core.Sampled([replica.core for replica in replicas], [1] * len(replicas))

    def ask() -> Occupancy:
        values = np.frombuffer(sampled.sample(clock.now_ns), np.int64).reshape(-1, _WIDTH)
        waiting = values[:, _WAITING] + values[:, _LOADING]
        use = 1 - (values[:, _FREE] + values[:, _CACHED]) / capacity
        return Occupancy(waiting.tolist(), values[:, _RUNNING].tolist(), use.tolist())

    return ask
