"""Number formats of weights and KV: size in bytes, scales included."""

from __future__ import annotations

import math
from fractions import Fraction

from kvcache_sim.model.catalog import unknown_name

#: Bits per value, scales included: one scale byte for 16 values (nvfp4) or 32 (mxfp4, mxfp8), two for 32
#: (int4-g32) or 128 (int4-g128). Scales of FP8 blocks of 128 × 128 are below a thousandth and left out.
_BITS = {
    "fp32": Fraction(32),
    "bf16": Fraction(16),
    "fp16": Fraction(16),
    "fp8": Fraction(8),
    "int8": Fraction(8),
    "mxfp8": Fraction(33, 4),
    "int4-g32": Fraction(9, 2),
    "int4-g128": Fraction(33, 8),
    "nvfp4": Fraction(9, 2),
    "mxfp4": Fraction(17, 4),
    "fp4": Fraction(4),
}
#: The layout of FlashMLA's FP8 latents, with its own scales (KV only; elsewhere same as ``fp8``).
FP8_DS_MLA = "fp8_ds_mla"
DTYPES = tuple(_BITS)
KV_DTYPES = ("bf16", "fp16", "fp32", "fp8", "int8", "nvfp4", FP8_DS_MLA)


def check_dtype(name: str, where: str, names: tuple[str, ...] = DTYPES) -> str:
    """Return ``name``; UsageError with all names and the nearest one if it is not one of ``names``."""
    if name not in names:
        refusal = unknown_name("dtype", name, names)
        refusal.where = where
        raise refusal
    return name


def bits_per_value(dtype: str) -> Fraction:
    """Return the bits that one value takes on average, scales included."""
    return _BITS["fp8" if dtype == FP8_DS_MLA else dtype]


def size_bytes(values: int, dtype: str) -> int:
    """Return the bytes of ``values`` numbers in a format, rounded up to a whole byte."""
    return math.ceil(values * bits_per_value(dtype) / 8)
