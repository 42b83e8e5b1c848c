"""Rates of a GPU that meet its measured kernels best: no rate moved by a twentieth meets them better."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.format_rates import GemmRates
from kvcache_sim.model.gpus import GpuSpec
from msgspec.structs import replace
from numpy.typing import NDArray

_MOVED = 0.05


def robust_loss(errors: NDArray, scale: float) -> float:
    """Return the soft L1 loss: from ``scale`` on an error counts less than its square."""
    return float(np.sum(np.sqrt(1 + (errors / scale) ** 2) - 1))


def assert_best(rates: Any, relative: Callable[[Any], NDArray], scale: float, names=()) -> None:
    """Check that the robust loss of the relative errors is least at these rates, each moved alone.

    Args:
        rates: the rates of a GPU file.
        relative: the errors of every kernel with some rates.
        scale: the scale of the loss.
        names: the rates to move; all numbers unless given.
    """

    def loss(of: Any) -> float:
        return robust_loss(relative(of), scale)

    least = loss(rates)
    for name in names or [field.name for field in fields(rates) if field.type in ("float", float)]:
        own = getattr(rates, name)
        for moved in (own * (1 - _MOVED), own * (1 + _MOVED)):
            if own and not (name == "exponent" and moved < 1):
                assert loss(replace(rates, **{name: moved})) > least * 0.999, (name, moved)


def assert_best_gemms(
    gpu: GpuSpec, rates: GemmRates, m: NDArray, n: NDArray, k: NDArray, time_ms: NDArray
) -> None:
    """Check the rates of products of ``m`` × ``k`` with ``k`` × ``n``, but of launch times and of heads."""
    kept = (n * k >= 8e6) & (n < 60_000)
    m, n, k, time_ms = (np.asarray(column, float)[kept] for column in (m, n, k, time_ms))
    dtype = getattr(rates, "dtype", "bf16")
    read_bytes = float(bits_per_value(dtype)) / 8 * (n * k + m * k) + 2 * m * n
    read_ms, compute_ms = read_bytes / gpu.memory_bytes_per_s * 1e3, 2 * m * n * k / gpu.flops(dtype) * 1e3

    def relative(of: GemmRates) -> NDArray:
        return (of.gemm_us / 1e3 + of.joined_ms(read_ms, compute_ms)) / time_ms - 1

    names = ("gemm_us", "weights", "compute", "exponent")
    if dtype == "bf16":
        names = ("gemm_us", "weights_efficiency", "compute_efficiency", "exponent")
    assert_best(rates, relative, 0.05, names)
