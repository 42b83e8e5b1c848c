"""Who drops blocks of one simulation when a request is done, and the gate before its router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.serving.retention.hints import RetentionHints
    from kvcache_sim.serving.tenants.cache_quota import CacheQuotas


class Keepers:
    """Quotas of tenants and hints of the trace, as far as a run has them."""

    def __init__(
        self,
        settings: ClusterSettings,
        trace: Trace,
        cluster: Cluster,
        trees: Sequence[MarkingStore | None],
    ) -> None:
        kept = KeptPrompts(cluster.replicas, trees)
        self._by_name: dict[str, CacheQuotas | RetentionHints] = {}
        tenants = settings.tenants
        if tenants is not None and len(trace.tenant):
            if tenants.holds_back:
                from kvcache_sim.serving.tenants.gate import TenantGate

                tokens = (trace.input_tokens + trace.output_tokens).tolist()
                names, tenant = trace.tenant_names, trace.tenant.tolist()
                cluster.hold_at(TenantGate(tenants, names, tenant, tokens, cluster.engine))
            if tenants.bounds_caches:
                from kvcache_sim.serving.tenants.cache_quota import CacheQuotas

                self._by_name["tenants"] = CacheQuotas(tenants, trace, kept)
        if len(trace.retention):
            from kvcache_sim.serving.retention.hints import RetentionHints

            self._by_name["retention"] = RetentionHints(trace, kept)
        for keeper in self._by_name.values():
            cluster.drop_by(keeper)

    @property
    def hear(self) -> bool:
        """Whether somebody is to be told of each request when it is done, and not early."""
        return bool(self._by_name)

    @property
    def counts(self) -> dict[str, int]:
        """Blocks dropped so far."""
        return {f"{name}.dropped_blocks": keeper.dropped_blocks for name, keeper in self._by_name.items()}
