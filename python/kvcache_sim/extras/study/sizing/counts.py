"""The smallest number of machines that holds a rate: bisection between the counts of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kvcache_sim.extras.study.sizing.question import RATE, Load

#: Machines → the rate that they hold, in requests a second; None: none that was tried.
Rates = Mapping[int, float | None]


def next_count(rates: Rates, need_per_s: float, unit: int = 1) -> int | None:
    """Return the count to try next; None once the smallest that holds the rate and its neighbors are known.

    More machines are assumed to hold more. The search bisects between the smallest count that holds the rate
    and the next smaller count tried, in multiples of ``unit``, then tries the count above the answer. Counts
    below and above those given are left out. Each count is returned once.
    """
    first = smallest_holding(rates, need_per_s)
    if first is None:
        return None
    below = max((count for count in rates if count < first), default=first)
    if first - below > unit:
        return below + (first - below) // unit // 2 * unit
    above = first + unit
    return above if above not in rates and above < max(rates) else None


def smallest_holding(rates: Rates, need_per_s: float) -> int | None:
    """Return the smallest count that holds a rate; None where none does."""
    return min((n for n, rate in rates.items() if rate is not None and rate >= need_per_s), default=None)


def count_sentences(rates: Rates, need_per_s: float, unit: int = 1, load: Load = RATE) -> list[str]:
    """Return the answer with its neighbors, what was tried and what was not, and what contradicts it."""
    counts, need = sorted(rates), f"{need_per_s:g} {load.behind}"
    first = smallest_holding(rates, need_per_s)
    if first is None:
        most = counts[-1]
        return [f"{machines(most)} {_holds(most, rates[most], load)}, not {need}{_enough(rates, need_per_s)}"]
    near = [n for n in (max((n for n in counts if n < first), default=0), *_after(counts, first)) if n]
    held = "; ".join(f"{n:,} {_holds(n, rates[n], load)}" for n in near)
    lines = [f"smallest number that holds {need}: {machines(first)}" + (f" ({held})" if held else "")]
    gaps = [range(a + unit, b, unit) for a, b in pairwise(counts) if b - a > unit]
    left_out = f"; not tried: {_ranges(gaps)}, assuming that more machines hold more" if gaps else ""
    tried = ", ".join(f"{count:,}" for count in counts)
    lines.append(f"tried {tried} machines{left_out}")
    if first == counts[0] and first > unit:
        lines.append(f"fewer than {machines(first)} were not tried: begin the grid at {unit}")
    for fewer, more in pairwise(counts):
        if (rates[more] or 0.0) * 1.02 < (rates[fewer] or 0.0):
            lines.append(
                f"more machines do not always hold more here ({fewer:,} {_holds(fewer, rates[fewer], load)}, "
                f"{more:,} {_holds(more, rates[more], load)}): a count that was not tried may hold it too"
            )
            break
    return lines


def machines(count: int) -> str:
    """Return a number of machines in words."""
    return f"{count:,} machine{'s' * (count != 1)}"


def _after(counts: Sequence[int], first: int) -> list[int]:
    return [count for count in counts if count > first][:1]


def _holds(count: int, rate: float | None, load: Load) -> str:
    verb = "holds" if count == 1 else "hold"
    return f"{verb} {f'no {load.name}' if rate is None else f'{load.text(rate, short=True)}'}"


def _enough(rates: Rates, need_per_s: float) -> str:
    """Return a grid to try: a quarter more machines than enough, if the rate grows with them."""
    most = max(rates)
    rate = rates[most]
    if not rate:
        return ""
    return f": try --grid cluster.machines={most},{math.ceil(1.25 * need_per_s / rate * most)}"


def _ranges(gaps: Iterable[range]) -> str:
    return ", ".join(f"{gap[0]:,}" if len(gap) == 1 else f"{gap[0]:,}–{gap[-1]:,}" for gap in gaps)
