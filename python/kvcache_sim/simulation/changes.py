"""Changes during a run: machines that join or leave by a plan or a policy, dropped copies, the gate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.serving.membership.plan import MembershipPlan
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation.routing import Routing
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.serving.membership.losses import Losses
    from kvcache_sim.serving.membership.membership import Membership
    from kvcache_sim.serving.membership.scaling import FleetChange, Scaling
    from kvcache_sim.serving.retention.hints import RetentionHints
    from kvcache_sim.serving.tenants.cache_quota import CacheQuotas


class RetentionPolicies:
    """Tenants' quotas and the trace's retention hints, as far as a run has them."""

    def __init__(
        self,
        settings: ClusterSettings,
        trace: Trace,
        cluster: Cluster,
        trees: Sequence[MarkingStore | None],
    ) -> None:
        kept = KeptPrompts(cluster.replicas, trees, trace)
        self._by_name: dict[str, CacheQuotas | RetentionHints] = {}
        tenants = settings.tenants
        if tenants is not None and len(trace.tenant):
            if tenants.holds_back:
                from kvcache_sim.serving.tenants.gate import TenantGate, random_pick

                tokens = (trace.input_tokens + trace.output_tokens).tolist()
                names, tenant = trace.tenant_names, trace.tenant.tolist()
                pick = random_pick(settings.seed) if tenants.order == "random" else None
                cluster.hold_at(TenantGate(tenants, names, tenant, tokens, cluster.engine, pick))
            if tenants.bounds_caches:
                from kvcache_sim.serving.tenants.cache_quota import CacheQuotas

                self._by_name["tenants"] = CacheQuotas(tenants, trace, kept)
        if len(trace.retention):
            from kvcache_sim.serving.retention.hints import RetentionHints

            self._by_name["retention"] = RetentionHints(trace, kept)
        for policy in self._by_name.values():
            cluster.drop_by(policy)

    @property
    def is_notified(self) -> bool:
        """True if a retention policy must be notified of each finished request at the simulated time."""
        return bool(self._by_name)

    @property
    def counts(self) -> dict[str, int]:
        """Blocks dropped so far."""
        return {f"{name}.dropped_blocks": policy.dropped_blocks for name, policy in self._by_name.items()}


class Changes:
    """Applies a membership plan to one cluster until every request is finished.

    Parts that the plan does not use are neither constructed nor imported.
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
        #: The serving machines, if they change.
        self.membership: Membership | None = None

    def router(self, routing: Routing, requests: int) -> Router:
        """Return the router; if the plan loses the router's index, one that can be reset."""
        if not self._plan.loses_copies:
            return routing.whole()
        from kvcache_sim.serving.membership.losses import Losses

        self._losses = Losses(self._plan, self._replicas, self._trees, routing.engine, self._done, requests)
        if self._pool is not None:
            self._losses.of_pool(self._pool)
        routing.when_closed.append(self._losses.closed)
        return self._losses.around(routing.whole, routing.forget)

    def join(self, cluster: Cluster, routing: Routing, trace: Trace) -> None:
        """Enable joins and leaves of a cluster's machines."""
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
        """Schedule the first changes of the plan."""
        for part in (self._losses, self._scaling):
            if part is not None:
                part.start()

    @property
    def lost(self) -> Collection[int]:
        """Indices of the machines that were removed."""
        return () if self.membership is None else self.membership.lost

    @property
    def noted(self) -> tuple[FleetChange, ...]:
        """Each state change of a machine under a scaling policy: its time, kind and machine."""
        return () if self._scaling is None else tuple(self._scaling.changes)

    def counters(self) -> dict[str, int]:
        """Return the number of changes of each kind, by the names of a run's counters."""
        parts = (self.membership, self._losses, self._scaling)
        return {
            f"membership.{name}": n for part in parts if part is not None for name, n in part.counts.items()
        }

    def _scaling_is_over(self, _: int) -> None:
        """Stop scaling after the last request."""
        if self._scaling is not None and self._done():
            self._scaling.over()
