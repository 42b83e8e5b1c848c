"""The model file: coefficients, the fitted measurements, and the error on held-out rows, as TOML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from kvcache_sim.model.parametric import ParametricStepTime


@dataclass(frozen=True, slots=True)
class PhaseError:
    """The relative error of one phase in percent: mean of |e|, 95th percentile of |e|, mean of e."""

    phase: str
    rows: int
    mape: float
    p95: float
    bias: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """The source of a set: the file and the processing; model and GPU may be empty (unknown)."""

    model: str
    gpu: str
    tensor_parallel: int
    source: str
    expert_parallel: int = 1
    data_parallel: int = 1


def model_text(
    model: ParametricStepTime,
    provenance: Provenance,
    errors: list[PhaseError],
    block_errors: Sequence[PhaseError] = (),
) -> str:
    """Return the file's text; ``load_step_time`` reads it back to an equal model.

    ``errors`` are of single held-out rows, ``block_errors`` of contiguous blocks of rows.
    """
    degrees = {"expert_parallel": provenance.expert_parallel, "data_parallel": provenance.data_parallel}
    lines = [
        *([f"model = {json.dumps(provenance.model)}"] if provenance.model else []),
        *([f"gpu = {json.dumps(provenance.gpu)}"] if provenance.gpu else []),
        f"tensor_parallel = {provenance.tensor_parallel}",
        *(f"{name} = {degree}" for name, degree in degrees.items() if degree > 1),
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
    held_out = [("held_out", error) for error in errors]
    for group, error in (*held_out, *(("held_out_blocks", error) for error in block_errors)):
        lines += [
            "",
            f"[{group}.{error.phase}]",
            f"rows = {error.rows}",
            f"mape_percent = {error.mape:.2f}",
            f"p95_percent = {error.p95:.2f}",
        ]
    return "\n".join(lines) + "\n"
