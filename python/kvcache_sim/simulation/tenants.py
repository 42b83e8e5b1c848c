"""Tenants of one simulation: the gate before its router, and the quotas of its caches."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.store import MarkingStore
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.tenants.cache_quota import CacheQuotas
from kvcache_sim.serving.tenants.settings import TenancySettings
from kvcache_sim.workload.trace import Trace


def share_among(
    settings: TenancySettings, trace: Trace, cluster: Cluster, trees: Sequence[MarkingStore | None]
) -> CacheQuotas | None:
    """Let a cluster's requests wait for their tenants' turns, and its caches keep quotas; return these."""
    if settings.holds_back:
        from kvcache_sim.serving.tenants.gate import TenantGate

        tokens = (trace.input_tokens + trace.output_tokens).tolist()
        names, tenant = trace.tenant_names, trace.tenant.tolist()
        cluster.hold_at(TenantGate(settings, names, tenant, tokens, cluster.engine))
    if not settings.bounds_caches:
        return None
    quotas = CacheQuotas(settings, trace, cluster.replicas, trees)
    cluster.keep_quotas(quotas)
    return quotas
