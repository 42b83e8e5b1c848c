"""Looks at all machines at once: one native call a routing decision where the stores are native."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.router.contract import Look
from kvcache_sim.serving.sequence import SequenceState

T = TypeVar("T")


def look_at(
    replicas: Sequence[Replica], engine: Engine, heard: bool = False
) -> Callable[[SequenceState], Look]:
    """Return what looks at the machines as they are at this moment.

    Every batch first runs the iterations that began before now, so that a store has what single steps would
    have put there; ``heard``: now is when all boundaries of this instant are over. Effects: none that a
    result shows.
    """
    from kvcache_sim import _core

    admitter = replicas[0].admitter  # the rules of matching are the cluster's
    stores = [store for r in replicas if (store := _native(r.store, _core.Store)) is not None]
    if len(stores) == len(replicas):
        batches = [_native(r.batch, _core.Batch) for r in replicas]
        fleet = _core.Fleet(stores, batches)

        def look(sequence: SequenceState) -> Look:
            limit = admitter.matchable_blocks(sequence.prompt_num_tokens)
            return Look(*fleet.look(sequence.request, limit, engine.now_ns + heard))

        return look

    def look_one_by_one(sequence: SequenceState) -> Look:
        limit = admitter.matchable_blocks(sequence.prompt_num_tokens)
        for replica in replicas:
            replica.catch_up(engine.now_ns + heard)
        found = [replica.store.peek(sequence.request, limit)[0] if limit else 0 for replica in replicas]
        return Look(found, [replica.store.room(0)[1] for replica in replicas])

    return look_one_by_one


def _native(part: object, kind: type[T]) -> T | None:
    """Return a part of a machine where it is the native one."""
    return part if isinstance(part, kind) else None
