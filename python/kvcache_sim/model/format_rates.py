"""Rates that GEMMs and the experts of a mixture reach on a GPU, by the format of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import check_keys

Times = NDArray[np.float64]


def smooth_maximum(a: Times, b: Times, exponent: float) -> Times:
    """Return ``(a^p + b^p)^1/p``: the sum at an exponent of 1, the maximum at a large one."""
    return np.asarray((a**exponent + b**exponent) ** (1 / exponent), np.float64)


def refuse_small(rates: Mapping[str, Any], where: str) -> None:
    """Raise UsageError, naming ``where``, for the first number among ``rates`` that is too small.

    That is an exponent below 1, a time or a factor of moved bytes below 0, or another share or factor that
    is not above 0.
    """
    for key, value in rates.items():
        if not isinstance(value, (int, float)):
            continue
        least = 1 if key == "exponent" else 0
        if value < least or (value == 0 and not key.endswith(("_us", "io"))):
            raise UsageError(f"{key} is too small", where=where, got=str(value))


class GemmRates(Value):
    """Time of a GEMM: ``gemm_us + ((bytes / (B·weights))^p + (operations / (F·compute))^p)^1/p``.

    B is the memory bandwidth and F the peak rate of the GPU (for four bits that of 16: ``compute`` may exceed
    1). ``dtype`` is the format of the weights: fp8 or nvfp4; those of 16 bits are the GPU's ``KernelRates``.
    The time is that of vLLM's layer, which also brings its input into the format.
    """

    dtype: str
    gemm_us: float
    weights: float
    compute: float
    exponent: float

    def joined_ms(self, read_ms: Times, compute_ms: Times) -> Times:
        """Return the ms of GEMMs that at peak rates read and compute for these ms, without ``gemm_us``."""
        return smooth_maximum(read_ms / self.weights, compute_ms / self.compute, self.exponent)


class ExpertRates(Value):
    """Time of one layer's experts: two grouped GEMMs, and the kernels that sort, activate and add up.

    A layer takes ``fixed_us + ((bytes / (B·weights))^p + (operations / (F·compute) + io · moved / B)^p)^1/p``
    with B, F and the exponent p as in ``GemmRates``. ``dtype``: bf16, fp8, mxfp4, int4 or nvfp4.
    """

    dtype: str
    fixed_us: float
    weights: float
    compute: float
    io: float
    exponent: float

    def layer_ms(self, read_ms: Times, compute_ms: Times, moved_ms: Times) -> Times:
        """Return the ms of a layer whose experts at peak rates read, compute and move values for these ms."""
        computed_ms = compute_ms / self.compute + self.io * moved_ms
        joined_ms = smooth_maximum(read_ms / self.weights, computed_ms, self.exponent)
        return np.asarray(self.fixed_us / 1e3 + joined_ms, np.float64)


#: For formats that a GPU was not measured with: the medians of the measured GPUs.
UNMEASURED_GEMMS = (GemmRates("fp8", 6.55, 0.778, 0.515, 1.37),)
UNMEASURED_EXPERTS = (
    ExpertRates("bf16", 23.3, 0.911, 0.615, 2.27, 1.23),
    ExpertRates("fp8", 33.6, 0.871, 0.409, 2.13, 1.24),
    ExpertRates("mxfp4", 19.9, 0.666, 0.677, 2.83, 1.09),
    ExpertRates("int4", 42.6, 0.74, 0.415, 4.38, 1.09),
)
#: Formats by what they count as. Without rows of its own NVFP4 counts as MXFP4: a GPU then unpacks both.
_ALIKE = {"fp32": "bf16", "fp16": "bf16", "mxfp8": "fp8", "int8": "fp8", "fp4": "nvfp4"}


class FormatRates(Value):
    """The rates that a GPU was measured with, by format."""

    gemms: tuple[GemmRates, ...] = ()
    experts: tuple[ExpertRates, ...] = ()

    def gemm(self, dtype: str) -> GemmRates | None:
        """Return the rates of GEMMs in a format; None for 16 bits and what is unpacked to them."""
        kind = _ALIKE.get(dtype, dtype)
        return next((rates for rates in (*self.gemms, *UNMEASURED_GEMMS) if rates.dtype == kind), None)

    def expert(self, dtype: str) -> ExpertRates:
        """Return the rates of experts with weights of a format: the GPU's own, else the medians of others."""
        kind = "int4" if dtype.startswith("int4") else _ALIKE.get(dtype, dtype)
        found = {rates.dtype: rates for rates in (*UNMEASURED_EXPERTS, *self.experts)}
        return found.get(kind) or found["mxfp4"]


def format_rates(gemms: dict[str, Any], experts: dict[str, Any], where: str) -> FormatRates:
    """Return the rates of a GPU file's ``[gemms]`` and ``[experts]`` tables.

    Raises UsageError, naming ``where``, for an unknown format, an unknown or missing key, a value of the
    wrong type, a share not above 0, a time or factor below 0, or an exponent below 1.
    """
    gemm_rates = _rows(gemms, GemmRates, ("fp8", "nvfp4"), f"{where}[gemms]")
    mixtures = _rows(experts, ExpertRates, ("bf16", "fp8", "mxfp4", "int4", "nvfp4"), f"{where}[experts]")
    return FormatRates(gemm_rates, mixtures)


def _rows(table: dict[str, Any], kind: type[Value], formats: tuple[str, ...], where: str) -> tuple[Any, ...]:
    known: dict[str, type | tuple[type, ...]] = dict.fromkeys(formats, dict)
    check_keys(table, known | {"source": str}, where)
    numbers = [key for key in kind.__struct_fields__ if key != "dtype"]
    rows = {dtype: row for dtype, row in table.items() if dtype != "source"}
    for dtype, row in rows.items():
        check_keys(row, dict.fromkeys(numbers, (int, float)), f"{where} {dtype}")
        for key in numbers:
            if key not in row:
                raise UsageError(f"no {key}", where=f"{where} {dtype}")
        refuse_small(row, f"{where} {dtype}")
    return tuple([kind(dtype, **row) for dtype, row in rows.items()])
