"""Cache quotas: a machine keeps the most recently used prompt blocks of each tenant."""

from __future__ import annotations

from collections import OrderedDict

from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.serving.tenants.settings import TenancySettings
from kvcache_sim.workload.trace import Trace, view


class CacheQuotas:
    """Drops a tenant's least recently used blocks beyond its quota when one of its requests finishes.

    A block that tenants share belongs to the tenant that used it last. Blocks of running requests stay until
    the requests finish. Blocks of answers are dropped with the prompt's last block and are not counted.
    Cost per request: O(ids of its prompt).
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
        #: By machine: tenant → its ids, least recently used first, with the last request that used each.
        self._used: list[dict[int, OrderedDict[int, int]]] = [{} for _ in kept.replicas]
        #: By machine: id → the tenant that used it last.
        self._owner: list[dict[int, int]] = [{} for _ in kept.replicas]
        self.dropped_blocks = 0

    def closed(self, request: int, machine: int) -> None:
        """Apply the quota of the tenant of a request that finished on a machine."""
        tenant = self._tenant_of[request]
        used, owner = self._used[machine], self._owner[machine]
        names = used.setdefault(tenant, OrderedDict())
        for index in range(self._offsets[request + 1] - 1, self._offsets[request] - 1, -1):
            name = self._ids[index]
            before = owner.get(name, tenant)
            if before != tenant:
                del used[before][name]
            owner[name] = tenant
            names[name] = request
            names.move_to_end(name)
        quota = self._quotas[tenant]
        while quota is not None and len(names) * self._per_id > quota:
            name, user = names.popitem(last=False)
            del owner[name]
            self._drop(machine, user, name)

    def _drop(self, machine: int, request: int, name: int) -> None:
        """Drop a block, and the blocks that follow it in a prompt, on a machine."""
        first = self._offsets[request]
        index = next(p for p in range(self._offsets[request + 1] - first) if self._ids[first + p] == name)
        self.dropped_blocks += self._kept.drop(machine, request, index * self._per_id)
