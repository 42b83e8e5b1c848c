"""The split of machines into a prefill and a decode pool that holds the highest rate, and its sentences."""

from __future__ import annotations

from itertools import pairwise

from kvcache_sim.base.units import significant
from kvcache_sim.extras.study.sizing.counts import Rates, machines
from kvcache_sim.extras.study.sizing.question import RATE, Load

#: The rates of a search are this far apart: closer ones are equal.
_STEP = 1.02


def next_splits(rates: Rates, count: int) -> list[int]:
    """Return the numbers of prefill machines to try next; none once the neighbors of the best are known.

    The rate is assumed to rise up to one number of prefill machines and to fall beyond it. The search starts
    at the quarters and halves the distance on both sides of the best, or of all that are equally good. Each
    number is returned once.
    """
    if not rates:
        return sorted({max(1, count * quarter // 4) for quarter in (1, 2, 3)} & set(range(1, count)))
    best = max(rate or 0.0 for rate in rates.values())
    top = [split for split in sorted(rates) if (rates[split] or 0.0) == best]
    below = max((split for split in rates if split < top[0]), default=0)
    above = min((split for split in rates if split > top[-1]), default=count)
    known = [below, *(split for split in sorted(rates) if below < split < above), above]
    return [(a + b) // 2 for a, b in pairwise(known) if b - a > 1]


def best_split(rates: Rates) -> int | None:
    """Return the number of prefill machines that holds the highest rate, the smallest among equals."""
    held = [split for split in sorted(rates) if rates[split] is not None]
    return max(held, key=lambda split: rates[split] or 0.0, default=None)


def split_sentences(rates: Rates, together_per_s: float | None, count: int, load: Load = RATE) -> list[str]:
    """Return the best split against the same machines without pools, what was tried and what was not.

    ``together_per_s``: the rate that the machines hold without pools; None: none.
    """
    best = best_split(rates)
    alone = f"{machines(count)} without pools hold {_rate(together_per_s, load)}"
    if best is None:
        verdict = f"pools: no split of {machines(count)} holds any {load.name} that was tried; {alone}"
    else:
        rate = rates[best] or 0.0
        verdict = (
            f"pools: {best:,} prefill + {count - best:,} decode machines hold {_rate(rate, load)}; {alone}"
        )
        if together_per_s is None:
            verdict += ": pools pay here"
        elif max(rate, together_per_s) <= _STEP * min(rate, together_per_s):
            verdict += ": equal within the 2 % of the search"
        else:
            pay = "pay" if rate > together_per_s else "do not pay"
            verdict += f": pools {pay} here ({significant(rate / together_per_s)} ×)"
    missing = [split for split in range(1, count) if split not in rates]
    tried = ", ".join(_split(split, count) for split in sorted(rates))
    lines = [verdict, f"splits tried (prefill + decode): {tried}"]
    if missing:
        left_out = ", ".join(_split(split, count) for split in missing)
        lines[-1] += f"; not tried, assuming one maximum: {left_out}"
    return lines


def _rate(rate: float | None, load: Load) -> str:
    return f"no {load.name}" if rate is None else f"{load.text(rate)}"


def _split(split: int, count: int) -> str:
    return f"{split:,}+{count - split:,}"
