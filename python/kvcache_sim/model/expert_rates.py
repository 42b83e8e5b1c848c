"""Rates that the experts of a mixture reach on a GPU, by the format of their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.catalog import check_keys
from kvcache_sim.values import Value


class ExpertRates(Value):
    """Time of one layer's experts: two grouped GEMMs, and the kernels that sort, activate and add up.

    A layer takes ``fixed_us + ((bytes / (B·weights))^p + (operations / (F·compute) + io · moved / B)^p)^1/p``
    with the exponent p, and the memory bandwidth B and the peak rate F of the GPU (for four bits that of 16:
    ``compute`` may exceed 1).
    ``dtype`` is the format of the weights: bf16, fp8, mxfp4, int4 or nvfp4.
    """

    dtype: str
    fixed_us: float
    weights: float
    compute: float
    io: float
    exponent: float

    def layer_ms(
        self, read_ms: NDArray[np.float64], compute_ms: NDArray[np.float64], moved_ms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the ms of a layer whose experts at peak rates read, compute and move values for these ms."""
        p, computed_ms = self.exponent, compute_ms / self.compute + self.io * moved_ms
        joined_ms = ((read_ms / self.weights) ** p + computed_ms**p) ** (1 / p)
        return np.asarray(self.fixed_us / 1e3 + joined_ms, np.float64)


#: For formats that a GPU was not measured with: the medians of the measured GPUs.
UNMEASURED_EXPERTS = {
    rates.dtype: rates
    for rates in (
        ExpertRates("bf16", 23.3, 0.911, 0.615, 2.27, 1.23),
        ExpertRates("fp8", 33.6, 0.871, 0.409, 2.13, 1.24),
        ExpertRates("mxfp4", 19.9, 0.666, 0.677, 2.83, 1.09),
        ExpertRates("int4", 42.6, 0.74, 0.415, 4.38, 1.09),
    )
}
_NUMBERS = ("fixed_us", "weights", "compute", "io", "exponent")
#: Formats by what they count as. Without rows of its own NVFP4 counts as MXFP4: a GPU then unpacks both.
_ALIKE = {"fp32": "bf16", "fp16": "bf16", "mxfp8": "fp8", "int8": "fp8", "fp4": "nvfp4"}


def rates_of_format(measured: tuple[ExpertRates, ...], dtype: str) -> ExpertRates:
    """Return the rates for weights of a format: the GPU's own, else the medians of others."""
    kind = "int4" if dtype.startswith("int4") else _ALIKE.get(dtype, dtype)
    own = {rates.dtype: rates for rates in measured}
    if kind == "nvfp4" and kind not in own:
        kind = "mxfp4"
    return own.get(kind) or UNMEASURED_EXPERTS[kind]


def expert_rates(table: dict[str, Any], where: str) -> tuple[ExpertRates, ...]:
    """Return the rates of a GPU file's ``[experts]`` table, by format.

    Raises UsageError, naming ``where``, for an unknown format, an unknown or missing key, a value of the
    wrong type, a share not above 0, a time or factor below 0, or an exponent below 1.
    """
    kinds: dict[str, type | tuple[type, ...]] = dict.fromkeys((*UNMEASURED_EXPERTS, "nvfp4"), dict)
    check_keys(table, kinds | {"source": str}, where)
    rates = {kind: row for kind, row in table.items() if kind != "source"}
    for kind, row in rates.items():
        own = f"{where} {kind}"
        check_keys(row, dict.fromkeys(_NUMBERS, (int, float)), own)
        for key in _NUMBERS:
            if key not in row:
                raise UsageError(f"no {key}", where=own)
            if row[key] < (key == "exponent") or (row[key] == 0 and key in ("weights", "compute")):
                raise UsageError(f"{key} is too small", where=own, got=str(row[key]))
    return tuple([ExpertRates(kind, **row) for kind, row in rates.items()])
