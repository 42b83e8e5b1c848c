"""The resolved scenario: every setting with its default filled in, as YAML that reproduces the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kvcache_sim.scenario.machines import pool_role
from kvcache_sim.scenario.schema import ChannelSection, MachineSection, ScenarioModel
from kvcache_sim.scenario.section import plain_values

#: Keys that name or locate a run without changing it.
_LABELS = ("name", "cost")


def resolve(
    model: ScenarioModel, machines: tuple[MachineSection, ...], channels: Mapping[str, ChannelSection]
) -> dict[str, Any]:
    """Return the scenario as plain values in the schema's order, defaults included, units written out."""
    plain = plain_values(model)
    plain["channels"] = {name: plain_values(section) for name, section in channels.items()}
    own = [_own(model, plain, index, machine) for index, machine in enumerate(machines)]
    while own and not own[-1]:
        own.pop()
    plain["machines"] = own
    return {key: value for key, value in plain.items() if value is not None}


def _own(model: ScenarioModel, plain: dict[str, Any], index: int, machine: MachineSection) -> dict[str, Any]:
    """Return a machine's differences from the common settings; ``plain``: the scenario's plain values."""
    role = pool_role(model, index)
    if machine.tiers is model.tiers and machine.replica is model.replica and machine.role == role:
        return {}
    return _difference(
        plain_values(machine), {"tiers": plain["tiers"], "replica": plain["replica"], "role": role}
    )


def _difference(value: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that, merged over ``base``, give ``value``."""
    result: dict[str, Any] = {}
    for key, own in value.items():
        if own == base[key]:
            continue
        inner = base[key]
        result[key] = _difference(own, inner) if isinstance(own, dict) and isinstance(inner, dict) else own
    return result


def config_hash(resolved: Mapping[str, Any], trace_sha256: str) -> str:
    """Return the SHA-256 of a run's inputs: the resolved settings and the content of its trace.

    Canonical JSON (sorted keys); labels and the trace's path are left out.
    """
    decisive = {key: value for key, value in resolved.items() if key not in _LABELS}
    if "trace" in decisive:
        decisive["trace"] = {**decisive["trace"], "path": trace_sha256}
    text = json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def to_yaml(resolved: Mapping[str, Any]) -> str:
    """Return the resolved scenario as YAML text, quoted where it would be ambiguous."""
    return "".join(_lines(resolved, ""))


def _lines(mapping: Mapping[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in mapping.items():
        name = f"{indent}{_scalar(key)}:"
        if isinstance(value, Mapping) and value:
            lines += [f"{name}\n", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{name} {_flow(value)}\n")
    return lines


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """Return a scalar as YAML: plain if it is a plain word, in JSON's quotes otherwise."""
    if isinstance(value, str):
        plain = value[:1].isalpha() and value.replace("-", "").replace("_", "").replace(".", "").isalnum()
        plain = plain and value.isascii() and value not in ("null", "true", "false")
        return value if plain else json.dumps(value)
    return json.dumps(value)
