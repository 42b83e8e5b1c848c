"""Looks at all machines at once: one native call a routing decision where the stores are native."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.router.contract import Look
from kvcache_sim.serving.sequence import SequenceState

if TYPE_CHECKING:
    from kvcache_sim import _core


def look_at(
    replicas: Sequence[Replica], engine: Engine, heard: bool = False
) -> Callable[[SequenceState], Look]:
    """Return what looks at the machines as they are at this moment.

    Every batch first runs the iterations that began before now, so that a store has what single steps would
    have put there; ``heard``: now is when all boundaries of this instant are over. Effects: none that a
    result shows.
    """
    from kvcache_sim import _core

    matchable_blocks = replicas[0].cache.matchable_blocks  # the rules of matching are the cluster's
    native = (_core.Store, _core.PoolStore, _core.RadixStore)
    stores = [store for r in replicas if isinstance(store := r.store, native)]
    if len(stores) == len(replicas):
        batches = [batch if isinstance(batch := r.batch, _core.Batch) else None for r in replicas]
        return FleetLook(_core.Fleet(stores, batches), matchable_blocks, engine, heard)

    def look_one_by_one(sequence: SequenceState) -> Look:
        limit = matchable_blocks(sequence.prompt_num_tokens)
        for replica in replicas:
            replica.catch_up(engine.now_ns + heard)
        found = [replica.store.peek(sequence.request, limit)[0] if limit else 0 for replica in replicas]
        return Look(found, [replica.store.room(0).active_blocks for replica in replicas])

    return look_one_by_one


class FleetLook:
    """Looks at native machines in one call, as they are now; ``heard`` as in ``look_at``."""

    def __init__(
        self, fleet: _core.Fleet, matchable_blocks: Callable[[int], int], engine: Engine, heard: bool
    ) -> None:
        self._fleet = fleet
        self._matchable_blocks = matchable_blocks
        self._engine = engine
        self._heard = heard

    def __call__(self, sequence: SequenceState) -> Look:
        """Return what each machine has."""
        limit = self._matchable_blocks(sequence.prompt_num_tokens)
        return Look(*self._fleet.look(sequence.request, limit, self._engine.now_ns + self._heard))

    def longest(self, sequence: SequenceState, loads: Sequence[int], threshold: float) -> list[int]:
        """Return the machines that ``longest_prefix.equally_long`` would, looking at candidates alone."""
        wanted = (sequence.request, self._matchable_blocks(sequence.prompt_num_tokens))
        return self._fleet.longest(wanted, self._engine.now_ns + self._heard, loads, threshold)
