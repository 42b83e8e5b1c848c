"""One cell of a study: a set of settings, addressed by its content, and its record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: A value a scenario accepts under ``--set``; None takes a setting out, a mapping is a whole section.
Setting = str | int | float | bool | dict[str, Any] | None

Status = Literal["ok", "failed", "oom", "timeout", "died"]


@dataclass(frozen=True, slots=True)
class Study:
    """Data that all cells of a sweep share; sent to a worker once.

    ``files`` maps each input file (trace, plug-in), by absolute path, to its SHA-256.
    """

    #: ``module:function``; called as ``function(study, cell)``, returns the cell's summary.
    cell_function: str
    #: The scenario every cell starts from, as YAML text.
    base: str
    #: Directory that relative paths in the scenario start from.
    directory: str = "."
    files: Mapping[str, str] = field(default_factory=dict)
    #: Further parameters of the cell function, as plain values.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Input file → its path on this machine, where the two differ (a node of a cluster).
    moved: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a study: dotted settings over the base scenario, the seed of its repeat among them."""

    index: int
    cell_id: str
    settings: Mapping[str, Setting]
    repeat: int = 0
    #: Estimated work, in any unit: longer cells start first.
    work: float = 1.0


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The outcome of a cell. ``summary`` is empty unless ``status`` is ``ok``.

    ``elapsed_s`` and ``attempts`` depend on the machine and stay out of the exported tables.
    """

    cell_id: str
    status: Status
    summary: Mapping[str, object] = field(default_factory=dict)
    error: str = ""
    elapsed_s: float = 0.0
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one cell; None is no limit. ``retries`` counts new attempts after a worker died."""

    time_s: float | None = None
    memory_bytes: int | None = None
    retries: int = 2


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN (ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def content_address(value: object) -> str:
    """Return the first 20 hex digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:20]
