"""Arrival processes: start times of a workload's units (sessions, or single requests).

Each is a renewal process in *exposure* (mean gap 1), transformed by a rate. Unit k arrives at the time t at
which the integral of the rate from 0 to t reaches the sum of the first k gaps. So burstiness and rate are
independent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import LAST_NS, NS_PER_S, parse_time_ns
from kvcache_sim.base.values import Value
from kvcache_sim.workload.generate.lengths import file_name, given_keys

#: A time after the end of simulated time.
NEVER_NS = 2 * LAST_NS


class Arrivals:
    """An arrival process: exponential gaps at a constant rate by default."""

    __slots__ = ()
    rate_per_s: float

    def gaps(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return the next ``size`` gaps in exposure: mean 1 each."""
        return rng.standard_exponential(size)

    def times_ns(self, exposure: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the time in ns at which each exposure is reached."""
        with np.errstate(over="ignore"):
            return _whole_ns(exposure * (NS_PER_S / self.rate_per_s))


def _whole_ns(times_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return times in whole ns; times past the end of simulated time become ``NEVER_NS``."""
    return np.rint(np.minimum(times_ns, NEVER_NS)).astype(np.int64)


class Poisson(Value, Arrivals):
    """Independent arrivals at a constant rate: exponential gaps."""

    rate_per_s: float


class Gamma(Value, Arrivals):
    """Gamma gaps: ``burstiness`` is their shape, as in vLLM's benchmark (below 1 bursty, 1 Poisson)."""

    rate_per_s: float
    burstiness: float

    def gaps(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return gamma gaps of mean 1 and variance 1 ÷ burstiness."""
        return rng.standard_gamma(self.burstiness, size) / self.burstiness


class Constant(Value, Arrivals):
    """Equal gaps: unit k, from 1, arrives at k ÷ rate."""

    rate_per_s: float

    def gaps(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Return ones; draws nothing from the stream."""
        return np.ones(size)


class Ramp(Value, Arrivals):
    """Poisson arrivals with a rate that changes linearly from one value to another, then stays constant.

    With a = ``from_per_s``, b = ``to_per_s`` and D the duration, the exposure at t ≤ D is
    a·t + (b − a)·t² ÷ (2·D); it is solved for t.
    """

    from_per_s: float
    to_per_s: float
    duration_ns: int

    def times_ns(self, exposure: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the solution of the quadratic on the ramp, and a line past it."""
        a, b, seconds = self.from_per_s, self.to_per_s, self.duration_ns / NS_PER_S
        slope = (b - a) / seconds
        whole = (a + b) / 2 * seconds
        on_ramp = np.minimum(exposure, whole)
        # 2·E ÷ (a + √(a² + 2·slope·E)) is the root that stays exact as the slope goes to zero.
        t = 2 * on_ramp / (a + np.sqrt(np.maximum(a * a + 2 * slope * on_ramp, 0.0)))
        return _whole_ns((t + (exposure - on_ramp) / b) * NS_PER_S)


class TraceRate(Value, Arrivals):
    """Poisson arrivals at the rate of a trace: constant within each ``bin``, restarting at the trace's end.

    The rate of a bin is the number of the trace's arrivals in it, counted from its first arrival.
    """

    path: str
    bin_ns: int

    def times_ns(self, exposure: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the times at which the trace's cumulative count reaches each exposure."""
        upto = _counts_upto(self.path, self.bin_ns)
        rounds, rest = np.divmod(exposure, upto[-1])
        bins = np.interp(rest, upto, np.arange(len(upto)))
        return _whole_ns((rounds * (len(upto) - 1) + bins) * self.bin_ns)


@lru_cache(maxsize=8)
def _counts_upto(path: str, bin_ns: int) -> NDArray[np.float64]:
    """Return the cumulative number of a trace's requests at the end of each bin, preceded by 0."""
    from kvcache_sim.workload.readers import ReadSettings, read_trace

    arrival_ns = read_trace(path, settings=ReadSettings(time_order="keep")).arrival_ns
    counts = np.bincount((arrival_ns - arrival_ns.min()) // bin_ns)
    return np.concatenate(([0.0], np.cumsum(counts.astype(np.float64))))


#: Every arrival process by its name in a scenario; its keys are its fields (``duration`` with its unit).
ARRIVALS: dict[str, type[Any]] = {
    "poisson": Poisson,
    "gamma": Gamma,
    "constant": Constant,
    "ramp": Ramp,
    "trace": TraceRate,
}


def arrivals_from(where: str, value: Any) -> Arrivals:
    """Return the process of a mapping with ``process`` (default poisson).

    Raises UsageError naming ``where`` for an unknown process or key and for a rate not above zero.
    """
    if isinstance(value, Arrivals):
        return value
    if not isinstance(value, Mapping):
        raise UsageError("not an arrival process", where=where, got=repr(value), hint=_EXAMPLE)
    process = value.get("process", "poisson")
    if not isinstance(process, str) or process not in ARRIVALS:
        raise UsageError(
            "unknown arrival process",
            where=f"{where}.process",
            got=repr(process),
            expected=" | ".join(ARRIVALS),
        )
    keys = [item.name.removesuffix("_ns") for item in dataclasses.fields(ARRIVALS[process])]
    given = given_keys(where, process, keys, {key: part for key, part in value.items() if key != "process"})
    parts: list[Any] = [_part(f"{where}.{key}", key, given[key]) for key in keys]
    made: Arrivals = ARRIVALS[process](*parts)
    made.times_ns(np.zeros(1))  # raises here for an unreadable trace
    return made


_EXAMPLE = "such as {process: poisson, rate_per_s: 2}"


def _part(where: str, key: str, value: Any) -> float | int | str:
    if key == "path":
        return file_name(where, value)
    if key in ("duration", "bin"):
        if not isinstance(value, str) or parse_time_ns(value) <= 0:
            raise UsageError("not a time above zero", where=where, got=repr(value), expected="such as 60s")
        return parse_time_ns(value)
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value <= 0:
        raise UsageError("out of range", where=where, got=repr(value), expected="a number above zero")
    return float(value)
