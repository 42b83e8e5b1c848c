"""The section ``tenants`` of a scenario, and the settings it stands for."""

from collections.abc import Iterator
from typing import Annotated, Any

from kvcache_sim.scenario.quantities import Count, CountOrZero
from kvcache_sim.scenario.section import Section, about, changed
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
        name: TenantSettings(
            each.weight,
            each.priority,
            each.tokens_per_s,
            each.burst or each.tokens_per_s or 0,
            each.cache_blocks,
        )
        for name, each in own.of.items()
    }
    return TenancySettings(named, own.max_in_flight)


def idle(own: TenantsSection) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield what of the section has no effect, and why."""
    for name, each in own.of.items():
        if own.max_in_flight is None:
            for key in ("weight", "priority"):
                if key in changed(each):
                    yield ("of", name, key), "nobody waits for a turn: set tenants.max_in_flight"
        if each.burst is not None and each.tokens_per_s is None:
            yield ("of", name, "burst"), "tokens_per_s is null"
