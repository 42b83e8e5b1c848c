"""The section ``tenants`` of a scenario, and the settings it stands for."""

from typing import Annotated

from kvcache_sim.scenario.quantities import Count, CountOrZero
from kvcache_sim.scenario.section import Section, about, lowered
from kvcache_sim.serving.tenants.settings import TenancySettings, TenantSettings


class TenantSection(Section):
    """What one tenant is due."""

    weight: Annotated[float, about("its share beside others that wait", gt=0, le=10**6)] = 1.0
    priority: Annotated[int, about("its class: the smallest goes first", ge=-(10**6), le=10**6)] = 0
    tokens_per_s: Annotated[Count | None, about("prompt and generated tokens a second; null: any number")] = (
        None
    )
    burst: Annotated[Count | None, about("so many at once after a rest; null: a second's")] = None
    cache_blocks: Annotated[
        CountOrZero | None, about("blocks of its prompts that a machine keeps; null: any number")
    ] = None


class TenantsSection(Section):
    """Tenants that share the fleet."""

    field: Annotated[str, about("member of the trace's rows that names a request's tenant")] = "tenant"
    of: Annotated[
        dict[str, TenantSection], about("by name, such as {gold: {weight: 3}, free: {tokens_per_s: 9000}}")
    ] = {}
    max_in_flight: Annotated[
        Count | None, about("requests in the fleet at once, others wait; null: as they come")
    ] = None
    isolate: Annotated[bool, about("no tenant reuses another's blocks: its name is in every key")] = False


def tenancy(own: TenantsSection | None) -> TenancySettings | None:
    """Return the tenants' settings, None where there is no such section."""
    if own is None:
        return None
    named = {
        name: lowered(TenantSettings, each, burst_tokens=each.burst or each.tokens_per_s or 0)
        for name, each in own.of.items()
    }
    return TenancySettings(named, own.max_in_flight)
