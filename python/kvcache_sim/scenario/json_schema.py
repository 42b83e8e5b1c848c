"""The JSON Schema of a scenario, for completion and checks in editors: ``kvsim help schema``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from kvcache_sim.scenario.key_list import PRESET
from kvcache_sim.scenario.machine_sections import TierSection
from kvcache_sim.scenario.schema import ChannelSection, MachineSection, ScenarioModel
from kvcache_sim.scenario.section import Section, defaults, plain_values
from kvcache_sim.scenario.trace_section import TraceChanges
from kvcache_sim.workload.generate import KINDS


def json_schema() -> dict[str, Any]:
    """Return the schema of a scenario file; a machine's changes have the keys of its sections."""
    _, found = msgspec.json.schema_components(
        (ScenarioModel, MachineSection, TraceChanges), schema_hook=_written
    )
    for section in _sections(Section):
        if section.__name__ in found:
            _render_defaults(section, found[section.__name__]["properties"])
    for laid_over in (TierSection, ChannelSection):  # other keys come from the common tier or a preset
        found[laid_over.__name__]["required"] = []
    found["ChannelSection"]["properties"]["preset"] = {"type": "string", "description": PRESET[2]}
    root = found.pop("ScenarioModel")
    root["properties"]["machines"]["items"] = {"$ref": "#/$defs/MachineSection"}
    of_generators = {each.name for kind in KINDS.values() for each in fields(kind)}
    root["properties"]["workload"]["properties"] = {
        "kind": {"enum": list(KINDS)},
        **found.pop("TraceChanges")["properties"],
        **{key: {} for key in sorted(of_generators)},  # a number or a distribution
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": found}


def _written(quantity: Any) -> dict[str, Any]:
    """Return the schema of a quantity's written form."""
    arms: list[dict[str, Any]] = [{"type": kind} for kind in quantity.written]
    return arms[0] if len(arms) == 1 else {"anyOf": arms}


def _sections(base: type[Section]) -> list[type[Section]]:
    return [found for section in base.__subclasses__() for found in (section, *_sections(section))]


def _render_defaults(section: type[Section], properties: dict[str, Any]) -> None:
    """Write defaults in scenario syntax; defaults of nested sections are at their own keys."""
    usual = defaults(section)
    written = plain_values(usual)
    for key, described in properties.items():
        if isinstance(getattr(usual, key), Section):
            described.pop("default", None)
        elif "default" in described:
            described["default"] = written[key]
