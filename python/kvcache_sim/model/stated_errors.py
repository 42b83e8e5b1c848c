"""Stated errors of step-time sources, as factors on the true times: from whole runs, by kind of source."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.run_errors import Factors, Kind
from kvcache_sim.model.run_intervals import COMPOSED, OWN, ROOFLINE, WIDE, source_kind, step_interval
from kvcache_sim.model.served_kernels import clocks_measured
from kvcache_sim.model.step_times import is_sum_of_kernels, measured_on, same_shape_set, step_time_entry

__all__ = ["Factors", "StepErrors", "around", "stated_step_errors"]

#: Largest error on held-out decode rows, in per cent, of the sets whose streams were measured as a whole
#: (docs/data/packaged-sets.toml, h100-sweep-runs.toml). Whole runs of a set with larger ones may be off more.
_HELD_OUT_PERCENT = {COMPOSED: 1.52, OWN: 6.2}
#: Sets of which whole runs were measured, none of them fitted.
_WITH_RUNS = (
    "h100-llama-3.1-8b-tp1",
    "h100-llama-3-8b-tp1",
    "h100-qwen3-32b-tp2",
    "rtx4090-llama-3.1-8b-tp1",
)


class StepErrors(Value):
    """The stated errors of a source: of pure decode steps, of steps with a prefill chunk, and of mixed KV.

    ``mixed_kv`` is the range of the cost of KV reads in steps with a chunk if the cost was assumed and not
    measured. None: the source states nothing, or for ``mixed_kv`` the measured steps include it. ``source``
    names the origin of the figures.
    """

    decode: Factors | None
    chunk: Factors | None
    mixed_kv: Factors | None
    source: str


def around(percent: float) -> Factors:
    """Return the factors of a symmetric error in percent."""
    return Factors(1 / (1 + percent / 100), 1 + percent / 100)


def stated_step_errors(name: str, engine: str = "") -> StepErrors | None:
    """Return the stated errors of a step-time model, by its name as in ``load_step_time``.

    They are those of whole runs with sources of the same kind, never of rows of the grid that a set was
    fitted to. ``engine`` is that of ``source_kind``. None: a linear source has no error. Raises UsageError
    like ``load_step_time``.
    """
    kind = source_kind(name, engine)
    if kind is None:
        return None
    if kind.unmeasured:
        return StepErrors(WIDE, WIDE, None, f"{kind.unmeasured}: a third to three times is assumed")
    found = step_interval(kind)
    source = f"{found.runs} whole runs with {_words(kind)}{_assumed_clocks(name)}"
    if kind.source == ROOFLINE:
        return _of_roofline(name, found.factors, source)
    if name.endswith((".csv", ".csv.gz")):
        return StepErrors(found.factors, found.factors, None, source)
    if kind.source in _HELD_OUT_PERCENT:
        return _of_fit(name, kind, found.factors, source)
    return StepErrors(found.factors, found.factors, None, source)


def _assumed_clocks(name: str) -> str:
    """Return a note if clocks under load were not measured on the GPU of a sum of kernels."""
    gpu = measured_on(name).gpu
    if not is_sum_of_kernels(name) or gpu is None:
        return ""
    try:
        is_assumed = not clocks_measured(load_gpu(gpu))
    except UsageError:
        is_assumed = True
    return ", clocks under load as an H100's" if is_assumed else ""


def _words(kind: Kind) -> str:
    source = {ROOFLINE: "rooflines", COMPOSED: "sets composed of kernels", OWN: "sets of own iterations"}
    where = ", each on the machine it was fitted to" if kind.source == OWN else ""
    return f"{source.get(kind.source, kind.source)} of {kind.family.replace('moe', 'MoE')} models{where}"


def _of_fit(name: str, kind: Kind, factors: Factors, source: str) -> StepErrors:
    entry = step_time_entry(name)
    errors = {phase: float(row["mape_percent"]) for phase, row in entry.get("held_out", {}).items()}
    mixed_kv = None if "mixed" in errors or not errors else _assumed_mixed_kv(entry)
    same = same_shape_set(name)
    if (name if same is None else same[0]) in _WITH_RUNS:
        return StepErrors(factors, factors, mixed_kv, f"{source}, some with this set")
    decode = errors.get("decode")
    if decode is None:
        return StepErrors(factors, factors, mixed_kv, f"{source}, none with this set; no row held out")
    ratio = max(1.0, decode / _HELD_OUT_PERCENT[kind.source])
    factors = Factors(factors.low**ratio, factors.high**ratio)
    unstated = f"none with this set, {decode:g} % off on rows held out of its own grid"
    return StepErrors(factors, factors, mixed_kv, f"{source}, {unstated}")


def _assumed_mixed_kv(entry: dict[str, Any]) -> Factors | None:
    """Return the GPU's range of mixed to decode KV time over the set's ratio; None for an unknown GPU."""
    coefficients = entry["coefficients"]
    decode, mixed = (float(coefficients.get(f"kv_{key}ms_per_thousand", 0)) for key in ("", "mixed_"))
    try:
        low, high = load_gpu(str(entry.get("gpu", ""))).kernels.mixed_kv_range
    except UsageError:
        return None
    factor = mixed / decode if decode and mixed else 1.0
    return Factors(min(low / factor, 1.0), max(high / factor, 1.0))


def _of_roofline(name: str, factors: Factors, source: str) -> StepErrors:
    gpu = load_gpu(str(measured_on(name).gpu))
    low, high = gpu.kernels.mixed_kv_range
    factor = gpu.kernels.mixed_kv_factor
    mixed_kv = Factors(min(low / factor, 1.0), max(high / factor, 1.0))
    return StepErrors(factors, factors, mixed_kv, source)
