"""The section ``tenants`` of a scenario, and the settings it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcache_sim.scenario.quantities import MAX_COUNT
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.serving.tenants.settings import TenancySettings, TenantSettings


class TenantSection(Section):
    """What one tenant is due."""

    weight: float = Field(1.0, gt=0, le=10**6, description="its share beside others that wait")
    priority: int = Field(0, ge=-(10**6), le=10**6, description="its class: the smallest goes first")
    tokens_per_s: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="prompt and generated tokens a second; null: any number"
    )
    burst: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="so many at once after a rest; null: a second's"
    )
    cache_blocks: int | None = Field(
        None, ge=0, le=MAX_COUNT, description="blocks of its prompts that a machine keeps; null: any number"
    )


class TenantsSection(Section):
    """Tenants that share the fleet."""

    field: str = Field("tenant", description="member of the trace's rows that names a request's tenant")
    of: dict[str, TenantSection] = Field(
        default_factory=dict, description="by name, such as {gold: {weight: 3}, free: {tokens_per_s: 9000}}"
    )
    max_in_flight: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="requests in the fleet at once, others wait; null: as they come"
    )
    isolate: bool = Field(False, description="no tenant reuses another's blocks: its name is in every key")


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
                if getattr(each, key) != TenantSection.model_fields[key].default:
                    yield ("of", name, key), "nobody waits for a turn: set tenants.max_in_flight"
        if each.burst is not None and each.tokens_per_s is None:
            yield ("of", name, "burst"), "tokens_per_s is null"
