"""What comes and goes while a cluster serves: machines by a plan or a policy, copies that are lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kvcache_sim.cache.machine import Machine
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.membership.plan import MembershipPlan
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.simulation.routing import Routing
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.serving.membership.losses import Losses
    from kvcache_sim.serving.membership.membership import Membership
    from kvcache_sim.serving.membership.scaling import Scaling


class Changes:
    """Carries out a plan over one cluster until every request is done.

    What a plan has no use for is neither made nor imported.
    """

    def __init__(
        self,
        plan: MembershipPlan,
        replicas: Sequence[NativeReplica],
        caches: Sequence[Machine],
        done: Callable[[], bool],
    ) -> None:
        self._plan, self._replicas, self._done = plan, replicas, done
        self._trees = [cache.tree for cache in caches]
        self._pool = caches[0].pool
        self._losses: Losses | None = None
        self._scaling: Scaling | None = None
        #: Who serves, where that changes.
        self.membership: Membership | None = None

    def router(self, routing: Routing, requests: int) -> Router:
        """Return a router that begins anew where the plan has its index lost."""
        if not self._plan.loses_copies:
            return routing.whole()
        from kvcache_sim.serving.membership.losses import Losses

        self._losses = Losses(self._plan, self._replicas, self._trees, routing.engine, self._done, requests)
        if self._pool is not None:
            self._losses.of_pool(self._pool)
        routing.when_closed.append(self._losses.closed)
        return self._losses.around(routing.whole, routing.forget)

    def join(self, cluster: Cluster, routing: Routing, trace: Trace) -> None:
        """Let machines of a cluster come and go."""
        if not self._plan.changes_members:
            return
        from kvcache_sim.serving.membership.membership import Membership

        self.membership = Membership(self._plan, self._replicas, routing.among, cluster.engine)
        cluster.change_members_by(self.membership)
        if self._plan.scaling is None:
            return
        from kvcache_sim.serving.membership.scaling import Scaling

        self._scaling = Scaling(
            self._plan.scaling, self.membership, self._replicas, self._trees, trace, cluster.engine
        )
        routing.when_closed.append(self._scaling_is_over)

    def start(self) -> None:
        """Begin with what the plan has first."""
        for part in (self._losses, self._scaling):
            if part is not None:
                part.start()

    @property
    def lost(self) -> Collection[int]:
        """Numbers of the machines that are gone."""
        return () if self.membership is None else self.membership.lost

    @property
    def noted(self) -> tuple[tuple[int, str, int], ...]:
        """Each step of a machine's life under a scaling policy: its time, what it is, the machine."""
        return () if self._scaling is None else tuple(self._scaling.changes)

    def counters(self) -> dict[str, int]:
        """Return how often each change came to pass, by the names that a run's counters have for them."""
        parts = (self.membership, self._losses, self._scaling)
        return {
            f"membership.{name}": n for part in parts if part is not None for name, n in part.counts.items()
        }

    def _scaling_is_over(self, _: int) -> None:
        """Let no machine come or go after the last request."""
        if self._scaling is not None and self._done():
            self._scaling.over()
