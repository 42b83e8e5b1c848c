"""What engines report of themselves: waiting and running requests, and the use of the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.router.contract import Occupancy

#: Values of a machine in a native sample: its counts, then how the blocks of its GPU are used.
_WIDTH = 8
_WAITING, _RUNNING, _LOADING, _ACTIVE = 0, 1, 2, 5


def reports_of(
    replicas: Sequence[AnyReplica], engine: Engine, heard: bool = False
) -> Callable[[], Occupancy]:
    """Return what asks every engine for its report; cost: one native call where all machines are native.

    A request that waits for its KV to arrive waits. ``heard`` as in ``look.look_at``. Effects: none that a
    result shows.
    """
    from kvcache_sim import _core

    capacity = np.array([replica.store.room(0).capacity_blocks for replica in replicas], np.float64)
    native = [core for r in replicas if isinstance(core := r.load, _core.Replica)]
    if len(native) == len(replicas):
        sampled = _core.Sampled(native, [1] * len(native))

        def ask_at_once() -> Occupancy:
            values = np.frombuffer(sampled.sample(engine.now_ns + heard), np.int64).reshape(-1, _WIDTH)
            waiting = values[:, _WAITING] + values[:, _LOADING]
            use = values[:, _ACTIVE] / capacity
            return Occupancy(waiting.tolist(), values[:, _RUNNING].tolist(), use.tolist())

        return ask_at_once

    def ask_one_by_one() -> Occupancy:
        for replica in replicas:
            replica.catch_up(engine.now_ns + heard)
        counts = [replica.counts() for replica in replicas]
        active = np.array([replica.store.room(0).active_blocks for replica in replicas], np.int64)
        waiting = [queued + loading for queued, _, loading, _ in counts]
        return Occupancy(waiting, [running for _, running, _, _ in counts], (active / capacity).tolist())

    return ask_one_by_one
