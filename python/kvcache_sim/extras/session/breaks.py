"""Causes of breaks in order of their cost, and how often the provider's own labels agree."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.values import Value
from kvcache_sim.extras.session.bill import Bill, Break


class Cause(Value):
    """The breaks of one cause: their number, lost tokens and cost, and the provider's labels of them."""

    cause: str
    calls: int
    lost_tokens: int
    picodollars: int
    agree: int
    differ: int

    @property
    def labels(self) -> str:
        """The agreement as text; "" without labels."""
        counts = ((self.agree, "agree"), (self.differ, "differ"))
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def causes_of(bill: Bill) -> list[Cause]:
    """Return the causes of a bill's breaks, the dearest first."""
    by_cause: dict[str, list[Break]] = {}
    for each in bill.breaks:
        by_cause.setdefault(each.predicted.cause, []).append(each)
    found = [_cause(name, breaks) for name, breaks in by_cause.items()]
    return sorted(found, key=lambda cause: (-cause.picodollars, -cause.lost_tokens))


def costliest(bill: Bill, most: int) -> list[Break]:
    """Return the breaks that cost most, the dearest first."""
    return sorted(bill.breaks, key=lambda each: (-(each.picodollars or 0), -each.predicted.lost_tokens))[
        :most
    ]


def _cause(name: str, breaks: Sequence[Break]) -> Cause:
    return Cause(
        name,
        len(breaks),
        sum(each.predicted.lost_tokens for each in breaks),
        sum(each.picodollars or 0 for each in breaks),
        sum(each.agrees is True for each in breaks),
        sum(each.agrees is False for each in breaks),
    )
