"""Quotas of cache: of each tenant's prompts a machine keeps the blocks that were used last."""

from __future__ import annotations

from collections import OrderedDict

from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.serving.tenants.settings import TenancySettings
from kvcache_sim.workload.trace import Trace, view


class CacheQuotas:
    """Drops what of a tenant is beyond its quota when one of its requests is done, the longest unused first.

    A block that tenants share is the one's that used it last. What running requests hold stays until they are
    done. Blocks of answers go with the prompt's last block and are not counted. Cost: the prompt's ids a
    request.
    """

    def __init__(
        self,
        settings: TenancySettings,
        trace: Trace,
        kept: KeptPrompts,
    ) -> None:
        self._quotas = [settings.of(name).cache_blocks for name in trace.tenant_names]
        self._tenant_of = view(trace.tenant)
        self._ids, self._offsets = view(trace.block_ids), view(trace.id_offsets)
        self._per_id = trace.block_size // kept.block_size_tokens
        self._kept = kept
        #: By machine: tenant → its ids, the longest unused first, with the last request that used each.
        self._used: list[dict[int, OrderedDict[int, int]]] = [{} for _ in kept.replicas]
        #: By machine: id → the tenant that used it last.
        self._owner: list[dict[int, int]] = [{} for _ in kept.replicas]
        self.dropped_blocks = 0

    def closed(self, request: int, machine: int) -> None:
        """Hear that a request is done on a machine."""
        tenant = self._tenant_of[request]
        used, owner = self._used[machine], self._owner[machine]
        own = used.setdefault(tenant, OrderedDict())
        for index in range(self._offsets[request + 1] - 1, self._offsets[request] - 1, -1):
            name = self._ids[index]
            before = owner.get(name, tenant)
            if before != tenant:
                del used[before][name]
            owner[name] = tenant
            own[name] = request
            own.move_to_end(name)
        quota = self._quotas[tenant]
        while quota is not None and len(own) * self._per_id > quota:
            name, user = own.popitem(last=False)
            del owner[name]
            self._drop(machine, user, name)

    def _drop(self, machine: int, request: int, name: int) -> None:
        """Let a machine forget a block and what follows it in a prompt."""
        first = self._offsets[request]
        index = next(p for p in range(self._offsets[request + 1] - first) if self._ids[first + p] == name)
        self.dropped_blocks += self._kept.drop(machine, request, index * self._per_id)
