"""How many series one picture draws: the largest by name, the rest as one."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.report.colours import OTHER

#: More than this many colours cannot be told apart at a glance.
MOST_SERIES = 6


def drawn_as(amounts: Mapping[str, float]) -> dict[str, str]:
    """Return the name each series is drawn under, in the order given; series of nothing are left out.

    Up to ``MOST_SERIES`` keep their names. Of more, the largest keep theirs, and the rest are ``other``,
    which counts as one of them.
    """
    present = {name: amount for name, amount in amounts.items() if amount > 0}
    if len(present) <= MOST_SERIES:
        return {name: name for name in present}
    ranked = sorted(present, key=lambda name: -present[name])
    named = set(ranked[: MOST_SERIES - 1])
    return {name: name if name in named else OTHER for name in present}
