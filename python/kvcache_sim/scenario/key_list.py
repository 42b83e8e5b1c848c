"""Every key of a scenario with its default and meaning, as ``kvsim help scenario`` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from kvcache_sim.policies.plugins.choice import OneOf
from kvcache_sim.scenario.fleet_section import FaultSection, FleetEventSection
from kvcache_sim.scenario.models_section import ServedModelSection
from kvcache_sim.scenario.scaling_section import ScheduleSection
from kvcache_sim.scenario.schema import ChannelSection, ScenarioModel, SloClassSection
from kvcache_sim.scenario.section import Checked, Key, Parsed, Section, sections_in
from kvcache_sim.scenario.tenants_section import TenantSection
from kvcache_sim.scenario.tiers_section import TierSection
from kvcache_sim.scenario.trace_section import TraceChanges
from kvcache_sim.tiers import STAGING, TIERS

_PRESET = ("channels.NAME.preset", "null", "a measured link, such as pcie5-x16: gives what is not given here")

#: Sections of mappings and lists, whose keys are not the section's own.
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
    """Return a line a key: its dotted name, its default (* where it must be given), and what it means."""
    rows = [
        *_rows(ScenarioModel, ""),
        *_rows(TraceChanges, "workload."),
        _PRESET,
        *_rows(ChannelSection, "channels.NAME."),
        *_rows(SloClassSection, "slo.classes.NAME."),
        *_rows(TenantSection, "tenants.of.NAME."),
        *_rows(ServedModelSection, "models.of.NAME."),
    ]
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:<{width}}  {default:<19}  {meaning}" for name, default, meaning in rows]


def _rows(section: type[Section], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        inner = _section(field)
        if inner is TierSection:
            capacity = inner.model_fields["capacity"].description
            yield (
                f"{prefix}{name}.capacity",
                str(getattr(field.default, "capacity", "no such tier")),
                capacity,
            )
            yield f"{prefix}{name}.policy", "null", inner.model_fields["policy"].description
            if name == TIERS[STAGING]:
                engines = inner.model_fields["semantics"]
                yield f"{prefix}{name}.semantics", "null", _choices(engines) + (engines.description)
        elif inner is not None:
            yield from _rows(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, _default(field), _choices(field) + (field.description)


def _section(field: Key) -> type[Section] | None:
    """Return the section a key holds, None for a plain value."""
    found = next(sections_in(field.hint), None)
    return None if found in _SAID_APART else found


def _default(field: Key) -> str:
    if field.required:
        return "*"
    value: Any = field.value({})
    for written in field.metadata:
        if isinstance(written, Parsed):
            value = written.render(value)
    if value and isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _choices(field: Key) -> str:
    """Return the words a key takes, one or a list of them."""
    inner = [word for part in get_args(field.annotation) for word in (part, *get_args(part))]
    words = tuple(word for word in inner if isinstance(word, str))
    for check in field.metadata:
        if isinstance(check, Checked) and isinstance(check.func, OneOf):
            words = (*check.func.kind.names, "file.py:Name")
    return f"{' | '.join(words)}: " if words else ""
