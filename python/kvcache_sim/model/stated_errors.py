"""Stated errors of step-time sources, as factors on the true times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kvcache_sim.errors import UsageError
from kvcache_sim.model.aiconfigurator.deployment import PREFIX
from kvcache_sim.model.gpus import UNMEASURED, load_gpu
from kvcache_sim.model.linear import LINEAR
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.step_times import measured_on, step_time_entry


class Factors(NamedTuple):
    """The smallest and the largest ratio of the true to the simulated value."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StepErrors:
    """The stated errors of a source: of pure decode steps, of steps with a prefill chunk, and of mixed KV.

    ``mixed_kv`` is the range of the cost of KV reads in steps with a chunk if the cost was assumed and not
    measured. None: the source states nothing, or for ``mixed_kv`` the measured steps include it. ``source``
    names the origin of the figures.
    """

    decode: Factors | None
    chunk: Factors | None
    mixed_kv: Factors | None
    source: str


#: Simulated over measured, of six batches each of the sets in docs/data/roofline-sets.toml.
_DENSE_ROOFLINE = (0.60, 1.21)
_MIXTURE_ROOFLINE = (0.13, 2.53)
#: Error of measured kernels against whole iterations on B300, in per cent: dense, then mixtures, whose steps
#: with a chunk were not compared (docs/data/kernel-tables.toml).
_KERNELS_PERCENT = {False: (14.8, 9.2), True: (28.0, None)}


def around(percent: float) -> Factors:
    """Return the factors of a symmetric error in percent."""
    return Factors(1 / (1 + percent / 100), 1 + percent / 100)


def stated_step_errors(name: str) -> StepErrors | None:
    """Return the stated errors of a step-time model, by its name as in ``load_step_time``.

    For fitted sets they are the mean errors on held-out rows, for other sources those of docs/data.
    None:
    a linear source has no error. Raises UsageError like ``load_step_time``.
    """
    if name.startswith(LINEAR):
        return None
    if name.startswith("roofline:"):
        return _of_roofline(name)
    if name.startswith(PREFIX):
        decode, chunk = _KERNELS_PERCENT[_is_mixture(name)]
        source = "measured kernels against whole iterations on B300"
        return StepErrors(around(decode), None if chunk is None else around(chunk), None, source)
    if name.endswith((".csv", ".csv.gz")):
        return StepErrors(None, None, None, "iterations read through state no error")
    return _of_fit(step_time_entry(name))


def _of_fit(entry: dict[str, Any]) -> StepErrors:
    errors = {phase: float(row["mape_percent"]) for phase, row in entry.get("held_out", {}).items()}
    chunk = [errors[phase] for phase in ("prefill", "mixed") if phase in errors]
    source = "mean error on rows held out" if errors else "the set states no error"
    decode = around(errors["decode"]) if "decode" in errors else None
    mixed_kv = None if "mixed" in errors or not errors else _assumed_mixed_kv(entry)
    return StepErrors(decode, around(max(chunk)) if chunk else None, mixed_kv, source)


def _assumed_mixed_kv(entry: dict[str, Any]) -> Factors | None:
    """Return the range of the GPU's mixed KV factor over that of the set, if the GPU is known."""
    coefficients = entry["coefficients"]
    decode, mixed = (float(coefficients.get(f"kv_{key}ms_per_thousand", 0)) for key in ("", "mixed_"))
    try:
        low, high = load_gpu(str(entry.get("gpu", ""))).kernels.mixed_kv_range
    except UsageError:
        return None
    factor = mixed / decode if decode and mixed else 1.0
    return Factors(min(low / factor, 1.0), max(high / factor, 1.0))


def _of_roofline(name: str) -> StepErrors:
    gpu = load_gpu(str(measured_on(name).gpu))
    low, high = gpu.kernels.mixed_kv_range
    factor = gpu.kernels.mixed_kv_factor
    mixed_kv = Factors(min(low / factor, 1.0), max(high / factor, 1.0))
    if _is_mixture(name):
        return _inverted(_MIXTURE_ROOFLINE, mixed_kv, "a mixture's roofline on the B300 sets")
    if gpu.kernels.source.startswith("assumed") or gpu.kernels == UNMEASURED:
        return StepErrors(None, None, mixed_kv, f"no kernel of a {gpu.name} was measured")
    return _inverted(_DENSE_ROOFLINE, mixed_kv, "the roofline on fourteen dense sets")


def _inverted(simulated: tuple[float, float], mixed_kv: Factors, source: str) -> StepErrors:
    low, high = simulated
    factors = Factors(1 / high, 1 / low)
    return StepErrors(factors, factors, mixed_kv, source)


def _is_mixture(name: str) -> bool:
    model = measured_on(name).model
    groups = load_model(model).groups if model else ()
    return any(group.feed_forward is not None and group.feed_forward.experts for group in groups)
