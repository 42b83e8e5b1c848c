"""A trace faster or slower: times divided exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.toolbox.invariant import require, same_requests
from kvcache_sim.workload.trace import OPEN_LOOP, Trace


def parse_speed(text: str) -> Fraction:
    """Return a speed such as ``2``, ``0.5`` or ``3/2`` exactly."""
    try:
        return Fraction(text) if len(text) < 40 and "e" not in text.lower() else Fraction(0)
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            "not a speed", where="--speed", got=repr(text), expected="a number such as 2, 0.5 or 3/2"
        ) from None


def scale(trace: Trace, speed: Fraction) -> Trace:
    """Return the trace with every arrival and think time divided by ``speed`` (2: twice as fast).

    Quotients are exact, cut once to whole ns. Invariant: order, ties of integer multiples, lengths and ids
    stay; no time is a ns below its exact quotient.
    """
    if not Fraction(1, 10**9) <= speed <= 10**9:
        raise UsageError("speed out of range", where="SPEED", got=str(speed), expected="1e-9 to 1e9")
    think = trace.think_ns.copy()
    waits = think != OPEN_LOOP
    think[waits] = _divided(think[waits], speed)
    out = replace(trace, arrival_ns=_divided(trace.arrival_ns, speed), think_ns=think)
    order = np.argsort(trace.arrival_ns, kind="stable")
    require(bool(np.all(np.diff(out.arrival_ns[order]) >= 0)), "scale", "the order of arrivals stays")
    require(same_requests(trace, out), "scale", "lengths and ids stay")
    return out


def _divided(times_ns: NDArray[np.int64], speed: Fraction) -> NDArray[np.int64]:
    """Return times / speed in whole ns; Python's integers, so nothing overflows on the way."""
    quotients = [t * speed.denominator // speed.numerator for t in times_ns.tolist()]
    if any(q >= 1 << 63 for q in quotients):
        raise UsageError("times end beyond 292 years", where="SPEED", got=str(speed))
    return np.array(quotients, np.int64)
