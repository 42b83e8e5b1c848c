"""What engines report of themselves: waiting and running requests, and the use of the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kvcache_sim import _core
from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Occupancy

#: Values of a machine in a native sample: its counts, then how the blocks of its GPU are used.
_WIDTH = 8
_WAITING, _RUNNING, _LOADING, _ACTIVE = 0, 1, 2, 5


def reports_of(
    replicas: Sequence[NativeReplica], engine: Engine, after_boundaries: bool = False
) -> Callable[[], Occupancy]:
    """Return what asks every engine for its report; cost: one native call.

    A request that waits for its KV to arrive waits. ``after_boundaries`` as in ``look.look_at``. Effects:
    none that a
    result shows.
    """
    capacity = np.array([replica.store.occupancy(0).capacity_blocks for replica in replicas], np.float64)
    sampled = _core.Sampled([replica.core for replica in replicas], [1] * len(replicas))

    def ask() -> Occupancy:
        values = np.frombuffer(sampled.sample(engine.now_ns + after_boundaries), np.int64).reshape(-1, _WIDTH)
        waiting = values[:, _WAITING] + values[:, _LOADING]
        use = values[:, _ACTIVE] / capacity
        return Occupancy(waiting.tolist(), values[:, _RUNNING].tolist(), use.tolist())

    return ask
