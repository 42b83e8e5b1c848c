"""The routers of one simulation: the scenario's policy, and its view of the caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.engine import Engine
from kvcache_sim.serving.handover.pools import Pools
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.affinity import with_affinity
from kvcache_sim.serving.router.contract import Look, Router
from kvcache_sim.serving.router.in_core import look_at
from kvcache_sim.serving.router.index import RouterIndex
from kvcache_sim.serving.router.registry import router_maker
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import ClusterSettings

if TYPE_CHECKING:
    from kvcache_sim.serving.router.regret import Watched


class Routing:
    """Creates routers over all machines that accept requests, or over some of them.

    They read the caches themselves, or an index of the router's own. Raises UsageError for a policy that is
    unknown or cannot run here.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        pools: Pools,
        caches: Sequence[Machine],
        stores: StoreMaker,
        engine: Engine,
    ) -> None:
        self._settings, self._pools, self._caches, self._stores = settings, pools, caches, stores
        self.engine = engine
        #: Callbacks for each finished request.
        self.when_closed = pools.views.when_closed
        self._make = with_affinity(router_maker(settings.router.policy), pools.views.bindings())
        #: Model of each machine and of each request, if there are several.
        self._models: tuple[Sequence[int], Sequence[int]] | None = None
        self._look: Callable[[Arrival], Look] = look_at(pools.routed, engine)
        #: The router's own index, if it does not read the caches themselves.
        self.index: RouterIndex | None = None
        router = settings.router
        if router.index_blocks is not None and router.index_kind == "truth":
            self.index = RouterIndex(self._look, self._empty(), pools.routed, engine, router)
            self._look = self.index.look

    def by_model(self, of_machine: Sequence[int], model_of: Sequence[int]) -> None:
        """Route requests only to machines of their model, with one router per model."""
        self._models = of_machine, model_of

    def whole(self) -> Router:
        """Return a router over all machines, with empty state."""
        routed = self._pools.routed
        if self._models is not None:
            return self.among(routed)
        seen = self._trees(routed) if self.index is None else ()
        view = self._pools.views.of(routed, self._settings.router, self._settings.seed, self._look, seen)
        return self._make(view)

    def among(self, members: Sequence[NativeReplica]) -> Router:
        """Return a router over some machines, with empty state; it reads the caches themselves."""
        if self._models is None:
            return self._of_one_model(members)
        from kvcache_sim.serving.models.by_model import ByModel

        of_machine, model_of = self._models
        return ByModel(members, model_of, of_machine, self._of_one_model)

    def _of_one_model(self, members: Sequence[NativeReplica]) -> Router:
        look, trees = look_at(members, self.engine), self._trees(members)
        return self._make(
            self._pools.views.of(members, self._settings.router, self._settings.seed, look, trees)
        )

    def forget(self) -> None:
        """Clear the router's own index, if there is one."""
        if self.index is not None:
            self.index.forget(self._empty())

    def watched(self, router: Router) -> Watched:
        """Return a router whose choices are compared with the best ones."""
        from kvcache_sim.serving.router.regret import Watched

        routed = self._pools.routed
        times = [self._settings.machines[replica.machine].step_time for replica in routed]
        watched = Watched(router, routed, times, look_at(routed, self.engine))
        self._pools.views.when_closed.append(watched.closed)
        return watched

    def _empty(self) -> list[GpuStore]:
        tier = TierSettings(TIERS[COMPUTE], self._settings.router.index_blocks)
        return [self._stores.make_lone(tier) for _ in self._pools.routed]

    def _trees(self, replicas: Sequence[NativeReplica]) -> list[TieredStore | None]:
        caches = [self._caches[replica.machine] for replica in replicas]
        return [cache.tree if len(cache.tiers) > 1 else None for cache in caches]
