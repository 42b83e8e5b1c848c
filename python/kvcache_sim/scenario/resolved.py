"""The resolved scenario as YAML that reproduces the run, and the hash of what decides it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvcache_sim._core import Sha256

#: Keys that name or locate a run without changing it.
_LABELS = ("name", "cost")


def config_hash(resolved: Mapping[str, Any], trace_sha256: str) -> str:
    """Return the SHA-256 of a run's inputs: the resolved settings and the content of its trace.

    Canonical JSON (sorted keys); labels and the trace's path are left out.
    """
    decisive = {key: value for key, value in resolved.items() if key not in _LABELS}
    if "trace" in decisive:
        decisive["trace"] = {**decisive["trace"], "path": trace_sha256}
    text = json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Sha256(text.encode()).hexdigest()


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
