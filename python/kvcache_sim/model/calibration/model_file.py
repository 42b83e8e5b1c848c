"""The model file: coefficients, what they were fitted to, and the error on rows held out, as TOML."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from kvcache_sim.model.calibration.accuracy import PhaseError
from kvcache_sim.model.parametric import ParametricStepTime


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a set comes from: the file and what was done with it; model and GPU may be empty (unknown)."""

    model: str
    gpu: str
    tensor_parallel: int
    source: str


def model_text(model: ParametricStepTime, provenance: Provenance, errors: list[PhaseError]) -> str:
    """Return the file's text; ``load_step_time`` reads it back to an equal model."""
    lines = [
        *([f"model = {json.dumps(provenance.model)}"] if provenance.model else []),
        *([f"gpu = {json.dumps(provenance.gpu)}"] if provenance.gpu else []),
        f"tensor_parallel = {provenance.tensor_parallel}",
        f"source = {json.dumps(provenance.source, ensure_ascii=False)}",
        "",
        "[coefficients]",
    ]
    for name in (field.name for field in fields(model)):
        value = getattr(model, name)
        if isinstance(value, tuple):
            lines += [f"{name} = [", *(f"    [{x!r}, {y!r}]," for x, y in value), "]"] if value else []
        elif value != 0 and (name != "exponent" or not model.base_points):
            lines.append(f"{name} = {value!r}")
    for error in errors:
        lines += [
            "",
            f"[held_out.{error.phase}]",
            f"rows = {error.rows}",
            f"mape_percent = {error.mape:.2f}",
            f"p95_percent = {error.p95:.2f}",
        ]
    return "\n".join(lines) + "\n"
