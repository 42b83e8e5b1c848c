"""Settings of tenants."""

from __future__ import annotations

from kvcache_sim.values import Value


class TenantSettings(Value):
    """What one tenant is due."""

    weight: float = 1.0
    #: Its class: the smallest goes first, whatever the weights.
    priority: int = 0
    #: Prompt and generated tokens a second, and how many at once after a rest; None: any number.
    tokens_per_s: int | None = None
    burst_tokens: int = 0
    #: Blocks of prompts that a machine keeps of it; None: any number.
    cache_blocks: int | None = None


class TenancySettings(Value):
    """All tenants by name; others have the settings of ``TenantSettings()``."""

    named: dict[str, TenantSettings]
    #: Requests that are in the fleet at one time; None: as many as come.
    max_in_flight: int | None = None

    @property
    def holds_back(self) -> bool:
        """Whether requests may wait at the gateway."""
        return self.max_in_flight is not None or any(own.tokens_per_s for own in self.named.values())

    @property
    def bounds_caches(self) -> bool:
        """Whether machines keep only so much of a tenant."""
        return any(own.cache_blocks is not None for own in self.named.values())

    def of(self, name: str) -> TenantSettings:
        """Return what a tenant is due."""
        return self.named.get(name, _OTHERS)


_OTHERS = TenantSettings()
