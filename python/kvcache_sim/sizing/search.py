"""The highest step that attains: outwards in growing strides, then bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

#: A step up is a rate of 2 % more.
STEP = Fraction(51, 50)
#: About a factor of two: the first stride of a search.
_STRIDE = 35
#: Digits of a speed: rates that differ by less are one.
_DENOMINATOR = 10**9


def speed_of(step: int) -> Fraction:
    """Return how many times faster than recorded the arrivals of a step are: 1.02 to its power."""
    return (STEP**step).limit_denominator(_DENOMINATOR)


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search ended: neighbouring steps, the lower attains and the upper does not.

    ``attains`` is None where no step did, ``fails`` None where every step did.
    """

    attains: int | None
    fails: int | None


def highest_attaining(attains: Callable[[int], bool], lowest: int, highest: int) -> Found:
    """Return the highest step in [lowest, highest] that attains, as far as attaining is monotone.

    Each step is asked once; about log2 of the distance from step 0, twice. Step 0 is asked first.
    """
    start = min(max(0, lowest), highest)
    if attains(start):
        low, high = _outwards(attains, start, highest, want=False)
        if high is None:
            return Found(low, None)
    else:
        high_step, low_step = _outwards(attains, start, lowest, want=True)
        if low_step is None:
            return Found(None, high_step)
        low, high = low_step, high_step
    while high - low > 1:
        middle = (low + high) // 2
        if attains(middle):
            low = middle
        else:
            high = middle
    return Found(low, high)


def _outwards(attains: Callable[[int], bool], start: int, end: int, want: bool) -> tuple[int, int | None]:
    """Return the last step on the way from start to end that is not as wanted, and the first that is.

    The second is None where even ``end`` is not.
    """
    way = 1 if end >= start else -1
    last, stride = start, _STRIDE
    while last != end:
        step = last + way * min(stride, abs(end - last))
        if attains(step) == want:
            return last, step
        last, stride = step, 2 * stride
    return last, None
