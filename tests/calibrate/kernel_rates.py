"""Rates that a GPU's kernels reach, fitted to measured kernels: ``[kernels]`` and ``[experts]`` of a GPU file."""

from typing import NamedTuple

import numpy as np
from kvcache_sim.extras.calibrate.rows import scipy_optimize
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.gpus import GpuSpec
from numpy.typing import NDArray

_Column = NDArray[np.float64]

#: GEMMs of fewer weights are launch time, wider ones are heads of vocabularies.
_LEAST_WEIGHTS = 8e6
_MOST_COLUMNS = 60_000
#: KV bytes below which attention takes its fixed time, and KV bytes from which no on-chip cache holds the KV.
_FIXED_BYTES = 2e6
_STREAMED_BYTES = 512 * 2**20
#: Prefill attention whose products would take less at the peak rate says nothing of the rate.
_LEAST_PREFILL_MS = 0.01


def gemm_rates(
    gpu: GpuSpec, m: _Column, n: _Column, k: _Column, time_ms: _Column, dtype: str = "bf16"
) -> dict[str, float]:
    """Return the four GEMM rates of products of ``m`` × ``k`` with ``k`` × ``n`` in a format (needs scipy).

    Robust least squares of the relative error (soft L1, scale 5 %).
    """
    kept = (n * k >= _LEAST_WEIGHTS) & (n < _MOST_COLUMNS)
    m, n, k, time_ms = m[kept], n[kept], k[kept], time_ms[kept]
    read_bytes = float(bits_per_value(dtype)) / 8 * (n * k + m * k) + 2 * m * n
    read_ms = read_bytes / gpu.memory_bytes_per_s * 1e3
    compute_ms = 2 * m * n * k / gpu.flops(dtype) * 1e3

    def relative(x: _Column) -> _Column:
        p = x[3]
        joined = ((read_ms / x[1]) ** p + (compute_ms / x[2]) ** p) ** (1 / p)
        return np.asarray((x[0] + joined) / time_ms - 1, np.float64)

    bounds = ([0, 0.1, 0.05, 1], [0.05, 1.5, 6, 20])
    fixed_ms, weights, compute, exponent = _fitted(relative, [0.003, 0.8, 0.75, 3.0], 0.05, bounds)
    return {
        "gemm_us": fixed_ms * 1e3,
        "weights_efficiency": weights,
        "compute_efficiency": compute,
        "exponent": exponent,
    }


def decode_attention_rates(gpu: GpuSpec, kv_bytes: _Column, time_ms: _Column) -> dict[str, float]:
    """Return the fixed time of decode attention, and the share of the bandwidth at which it reads KV.

    The time is the median of batches of next to no KV, the share that of batches no cache on the chip holds.
    """
    fixed_ms = float(np.median(time_ms[kv_bytes < _FIXED_BYTES]))
    streamed = kv_bytes >= _STREAMED_BYTES
    peak_ms = kv_bytes[streamed] / gpu.memory_bytes_per_s * 1e3
    share = 1 / float(np.median((time_ms[streamed] - fixed_ms) / peak_ms))
    return {"attention_us": fixed_ms * 1e3, "kv_efficiency": share}


def prefill_attention_rates(
    gpu: GpuSpec, operations: _Column, io_bytes: _Column, time_ms: _Column
) -> dict[str, float]:
    """Return prefill attention's share of the peak rate, and how often its input and output are moved."""
    peak_ms = operations / gpu.bf16_flops * 1e3
    kept = peak_ms > _LEAST_PREFILL_MS
    peak_ms, time_ms = peak_ms[kept], time_ms[kept]
    io_ms = io_bytes[kept] / gpu.memory_bytes_per_s * 1e3

    def relative(x: _Column) -> _Column:
        return np.asarray((x[0] + peak_ms / x[1] + io_ms * x[2]) / time_ms - 1, np.float64)

    _, share, io = _fitted(relative, [0.005, 0.7, 1.0], 0.1, ([0, 0.1, 0], [0.1, 1.5, 5]))
    return {"attention_efficiency": share, "attention_io": io}


class ExpertRows(NamedTuple):
    """Measured layers of experts: what each reads, computes and moves, in ms at peak rates, and its time."""

    read_ms: _Column
    compute_ms: _Column
    moved_ms: _Column
    time_ms: _Column


def expert_rates(rows: ExpertRows) -> dict[str, float]:
    """Return the five rates of experts in one format (needs scipy).

    Robust least squares of the relative error (soft L1, scale 10 %).
    """

    def relative(x: _Column) -> _Column:
        computed = rows.compute_ms * x[2] + rows.moved_ms * x[3]
        joined = ((rows.read_ms * x[1]) ** x[4] + computed ** x[4]) ** (1 / x[4])
        return np.asarray((x[0] + joined) / rows.time_ms - 1, np.float64)

    bounds = ([0, 0.01, 0.01, 0, 1], [1, 20, 40, 40, 10])
    fixed_ms, reads, computes, io, exponent = _fitted(relative, [0.03, 1.1, 1.0, 2.0, 1.5], 0.1, bounds)
    return {
        "fixed_us": fixed_ms * 1e3,
        "weights": 1 / reads,
        "compute": 1 / computes,
        "io": io,
        "exponent": exponent,
    }


def _fitted(relative: object, start: list[float], scale: float, bounds: object) -> list[float]:
    found = scipy_optimize().least_squares(relative, start, loss="soft_l1", f_scale=scale, bounds=bounds)
    return [float(x) for x in found.x]
