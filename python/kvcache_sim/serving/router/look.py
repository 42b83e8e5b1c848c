"""Looks at all machines at once: one native call a routing decision where the stores are native."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look
from kvcache_sim.serving.sequence import Arrival

if TYPE_CHECKING:
    from kvcache_sim import _core

_REQUESTS = attrgetter("load.requests")


def look_at(replicas: Sequence[AnyReplica], engine: Engine, heard: bool = False) -> Callable[[Arrival], Look]:
    """Return what looks at the machines as they are at this moment.

    Every batch first runs the iterations that began before now, so that a store has what single steps would
    have put there; ``heard``: now is when all boundaries of this instant are over. Effects: none that a
    result shows.
    """
    from kvcache_sim import _core
    from kvcache_sim.serving.replica.native_rules import STORES_IN_CORE

    matchable_blocks = replicas[0].cache.matchable_blocks  # the rules of matching are the cluster's
    stores = [store for r in replicas if isinstance(store := r.store, STORES_IN_CORE)]
    if len(stores) == len(replicas):
        fleet = _core.Fleet(stores, [_ahead(replica) for replica in replicas])
        return FleetLook(fleet, replicas, engine, heard)

    def look_one_by_one(sequence: Arrival) -> Look:
        limit = matchable_blocks(sequence.prompt_num_tokens)
        for replica in replicas:
            replica.catch_up(engine.now_ns + heard)
        found = [replica.store.peek(sequence.request, limit)[0] if limit else 0 for replica in replicas]
        return Look(found, [replica.store.room(0).active_blocks for replica in replicas])

    return look_one_by_one


def _ahead(replica: AnyReplica) -> _core.Replica | _core.Batch | None:
    """Return what of a replica runs ahead of the clock on its store."""
    from kvcache_sim import _core

    if isinstance(replica, NativeReplica):
        return replica.core
    from kvcache_sim.serving.replica.replica import Replica

    batch = replica.batch if isinstance(replica, Replica) else None
    return batch if isinstance(batch, _core.Batch) else None


class FleetLook:
    """Looks at native machines in one call, as they are now; ``heard`` as in ``look_at``."""

    def __init__(
        self, fleet: _core.Fleet, replicas: Sequence[AnyReplica], engine: Engine, heard: bool
    ) -> None:
        self.fleet = fleet
        self._matchable_blocks = replicas[0].cache.matchable_blocks
        #: Whose load the core does not know.
        self._replicas = replicas if not all(isinstance(r, NativeReplica) for r in replicas) else ()
        self._engine = engine
        self._heard = heard

    @property
    def all_native(self) -> bool:
        """Whether the core knows every machine's load."""
        return not self._replicas

    def __call__(self, sequence: Arrival) -> Look:
        """Return what each machine has."""
        limit = self._matchable_blocks(sequence.prompt_num_tokens)
        return Look(*self.fleet.look(sequence.request, limit, self._engine.now_ns + self._heard))

    def longest(self, sequence: Arrival, threshold: float, known: Sequence[int] | None = None) -> int:
        """Return the machine of ``longest_prefix.equally_long`` whose turn it is (``ties``).

        ``known``: loads by machine; None: as they are now. Only machines are looked at that can have it: what
        idle ones have is entered on one board of all machines. Cost: a pass over loads, a look a candidate.
        """
        wanted = (sequence.request, self._matchable_blocks(sequence.prompt_num_tokens))
        loads = known if known is not None else list(map(_REQUESTS, self._replicas)) or None
        return self.fleet.longest(wanted, self._engine.now_ns + self._heard, loads, threshold)
