"""Every key of a scenario with its default and meaning, as ``kvsim help scenario`` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Meta
from msgspec.structs import FieldInfo

from kvcache_sim.base.tiers import COMPUTE, STAGING, TIERS
from kvcache_sim.cache.settings import FORM_KEYS
from kvcache_sim.scenario.cluster_sections import (
    FaultSection,
    FleetEventSection,
    ScheduleSection,
    ServedModelSection,
    TenantSection,
)
from kvcache_sim.scenario.machine_sections import TierSection
from kvcache_sim.scenario.schema import ChannelSection, ScenarioModel, SloClassSection
from kvcache_sim.scenario.section import Section, defaults, keys, parts, plain_values, section_in
from kvcache_sim.scenario.trace_section import TraceChanges

PRESET = (
    "channels.NAME.preset",
    "null",
    "a measured link, such as pcie5-x16: fills in keys that are not given",
)

#: Sections of mappings and lists, whose keys are listed separately.
_SAID_APART = (
    ChannelSection,
    SloClassSection,
    FleetEventSection,
    FaultSection,
    ScheduleSection,
    TenantSection,
    ServedModelSection,
)


def key_lines() -> list[str]:
    """Return one line per key: its dotted name, its default (* if required), and its meaning."""
    rows = [
        *_rows(ScenarioModel, ""),
        *_rows(TraceChanges, "workload."),
        PRESET,
        *_rows(ChannelSection, "channels.NAME."),
        *_rows(SloClassSection, "slo.classes.NAME."),
        *_rows(TenantSection, "tenants.of.NAME."),
        *_rows(ServedModelSection, "models.of.NAME."),
    ]
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:<{width}}  {default:<19}  {meaning}" for name, default, meaning in rows]


#: The keys of a tier below the GPU, and of the two that have others.
_OF_LOWER = ("capacity", "policy", *FORM_KEYS)
_OF_TIERS = {
    TIERS[COMPUTE]: _OF_LOWER[:2],
    TIERS[STAGING]: (*_OF_LOWER, "semantics", "chunk_tokens", "lazy_offload"),
}


def _rows(section: type[Section], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, key in keys(section).items():
        inner = section_in(key.type)
        if inner is TierSection:
            usual = getattr(defaults(section), name)
            here = "no such tier" if usual is None else str(usual.capacity)
            for tier_key, of_tier in keys(inner).items():
                if tier_key in _OF_TIERS.get(name, _OF_LOWER):
                    default = here if tier_key == "capacity" else "null"
                    yield f"{prefix}{name}.{tier_key}", default, _meaning(of_tier)
        elif inner is None or inner in _SAID_APART:
            yield prefix + name, _default(section, key), _meaning(key)
        else:
            yield from _rows(inner, f"{prefix}{name}.")


def _default(section: type[Section], key: FieldInfo) -> str:
    if key.required:
        return "*"
    value = plain_values(defaults(section))[key.name]
    if value and isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(key: FieldInfo) -> str:
    """Return the words that a key accepts, alone or as a list, and its meaning."""
    marks = [part for part in parts(key.type) if isinstance(part, Meta)]
    words = [part for part in parts(key.type) if isinstance(part, str)]
    if kinds := [mark.extra["kind"] for mark in marks if mark.extra]:
        words = [*kinds[0].names, "file.py:Name"]
    meaning = next((mark.description for mark in marks if mark.description), "")
    return f"{' | '.join(words)}: {meaning}" if words else meaning
