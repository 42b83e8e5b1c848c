"""Settings of tenants."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.base.values import Value


class TenantSettings(Value):
    """Weight, class and quotas of one tenant."""

    weight: float = 1.0
    #: Its class: the smallest goes first, independent of the weights.
    priority: int = 0
    #: Prompt and generated tokens per second, and the burst after idle time; None: no limit.
    tokens_per_s: int | None = None
    burst_tokens: int = 0
    #: Most prompt blocks of the tenant on a machine; None: no limit.
    cache_blocks: int | None = None


class TenancySettings(Value):
    """All tenants by name; others have the default settings ``TenantSettings()``."""

    named: dict[str, TenantSettings]
    #: Most requests in the fleet at one time; None: no limit.
    max_in_flight: int | None = None
    #: Next of a tenant's waiting requests: the oldest, or a random one.
    order: Literal["in-turn", "random"] = "in-turn"

    @property
    def holds_back(self) -> bool:
        """True if requests may wait at the gateway."""
        return self.max_in_flight is not None or any(tenant.tokens_per_s for tenant in self.named.values())

    @property
    def bounds_caches(self) -> bool:
        """True if a tenant has a cache quota."""
        return any(tenant.cache_blocks is not None for tenant in self.named.values())

    def of(self, name: str) -> TenantSettings:
        """Return the settings of a tenant."""
        return self.named.get(name, _OTHERS)


_OTHERS = TenantSettings()
