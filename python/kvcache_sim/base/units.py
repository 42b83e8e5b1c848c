"""Sizes, rates and times: written with units, converted to integers.

GB is 10⁹ bytes and GiB 2³⁰; ``Gb/s`` counts bits and ``GB/s`` bytes; a number without its unit is refused.
All conversions are exact: decimal text is scaled as a fraction, never through a float.
"""

from __future__ import annotations

import re
from fractions import Fraction

from kvcache_sim.base.errors import UsageError

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
#: End of simulated time, 73 years: sums of times stay within 64-bit arithmetic.
LAST_NS = 2**61
#: Upper limits of written times, sizes and rates.
MOST_NS, MOST_BYTES, MOST_BYTES_PER_S = 3_652 * 86_400 * NS_PER_S, 2**60, 10**18

_NUMBER = r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$"
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_PREFIX = {**_DECIMAL, **_BINARY}
_TIME_NS: dict[str, Fraction] = {
    "ns": Fraction(1),
    "us": Fraction(10**3),
    "µs": Fraction(10**3),
    "ms": Fraction(10**6),
    "s": Fraction(10**9),
    "m": Fraction(60 * 10**9),
    "min": Fraction(60 * 10**9),
    "h": Fraction(3600 * 10**9),
    "d": Fraction(86400 * 10**9),
}


def _split(text: str, what: str, expected: str) -> tuple[Fraction, str]:
    match = re.match(_NUMBER, text, re.DOTALL)
    if match is None or len(text) > 60:
        raise UsageError(f"not a {what}", got=repr(text), expected=expected)
    exponent = re.search(r"[eE]([+-]?\d+)$", match[1])
    if exponent is not None and abs(int(exponent[1])) > 30:
        raise UsageError(f"{what} out of range", got=repr(text), expected=expected)
    return Fraction(match[1].replace("_", "")), match[2]


def parse_time_ns(text: str) -> int:
    """Return a time such as ``250us``, ``3s`` or ``1.5 ms`` in integer nanoseconds (rounded half to even)."""
    expected = "a time with its unit, such as 250us, 3s or 1.5ms"
    value, unit = _split(text, "time", expected)
    if unit not in _TIME_NS:
        raise UsageError("time without a known unit", got=repr(text), expected=expected)
    if value < 0:
        raise UsageError("negative time", got=repr(text), expected="a time ≥ 0")
    time_ns = round(value * _TIME_NS[unit])
    if time_ns > MOST_NS:
        raise UsageError("time out of range", got=repr(text), expected="at most 3652d (ten years)")
    return time_ns


def parse_size_bytes(text: str) -> int:
    """Return a size such as ``80GiB`` or ``16 GB`` in bytes."""
    expected = "a size with its unit, such as 80GiB (2³⁰) or 16GB (10⁹)"
    value, unit = _split(text, "size", expected)
    if not unit.endswith("B") or unit[:-1] not in _PREFIX:
        raise UsageError("size without a known unit", got=repr(text), expected=expected)
    if value < 0:
        raise UsageError("negative size", got=repr(text), expected="a size ≥ 0")
    size_bytes = round(value * _PREFIX[unit[:-1]])
    if size_bytes > MOST_BYTES:
        raise UsageError("size out of range", got=repr(text), expected="at most 1024PiB")
    return size_bytes


def parse_rate_bytes_per_s(text: str) -> int:
    """Return a rate such as ``25GB/s``, ``400Gb/s`` or ``400Gbps`` in bytes per second."""
    expected = "a rate with its unit, such as 25GB/s (bytes) or 400Gb/s (bits)"
    value, unit = _split(text, "rate", expected)
    bits = False
    if unit.endswith(("bps", "b/s")):
        prefix, bits = unit[:-3], True
    elif unit.endswith("B/s"):
        prefix = unit[:-3]
    else:
        raise UsageError("rate without a known unit", got=repr(text), expected=expected)
    if prefix not in _PREFIX:
        raise UsageError("rate without a known unit", got=repr(text), expected=expected)
    rate = round(value * _PREFIX[prefix] / (8 if bits else 1))
    if rate <= 0:
        raise UsageError("rate must be above zero", got=repr(text), expected=expected)
    if rate > MOST_BYTES_PER_S:
        raise UsageError("rate out of range", got=repr(text), expected="at most 1000PB/s")
    return rate


def format_bytes(count: int) -> str:
    """Format a size in binary units: ``80.0 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def significant(value: float) -> str:
    """Return a number for people in three significant digits: ``0.0123``, ``45.6``, ``7,890``."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def format_percent(share: float) -> str:
    """Return a share as a percentage in three significant digits, two decimals at most: ``4.32 %``."""
    return f"{100 * share:.1f} %" if abs(share) >= 0.09995 else f"{100 * share:.2f} %"


def format_time_ns(count: int | float) -> str:
    """Return a time for people in three significant digits: ``850 ns``, ``1.24 ms``, ``21.1 h``."""
    units = ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms"), (1.2e11, 1e9, "s"), (7.2e12, 6e10, "min"))
    for limit, scale, unit in units:
        if abs(count) < limit:
            return f"{significant(count / scale)} {unit}"
    return f"{significant(count / 3.6e12)} h"


def format_time_ms(count: float) -> str:
    """Return a time of so many ms for people, as ``format_time_ns`` does."""
    return format_time_ns(count * 1e6)
