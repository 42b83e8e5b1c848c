"""Where a source's times by token count bend: halved until straight lines meet them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

#: Between two bends the source is off the line by no more than this share, at the counts looked at.
_CLOSE = 0.004


def bends(ms_of: Callable[[int], float], counts: Sequence[int]) -> dict[int, float]:
    """Return the ms at the given rising counts and at those between them that a straight line misses.

    Of each span the middle is looked at and both counts beside its ends: a kernel that changes does so right
    past a count it was tuned for, so these should be among those given. ``ms_of`` is called once a count, for
    a smooth source four times a span.
    """
    found = {count: ms_of(count) for count in counts}
    spans = list(pairwise(counts))
    while spans:
        left, right = spans.pop()
        inner = sorted({left + 1, (left + right) // 2, right - 1} - {left, right})
        missed = False
        for count in inner:
            if count not in found:
                found[count] = ms_of(count)
            line = found[left] + (found[right] - found[left]) * (count - left) / (right - left)
            missed = missed or abs(line - found[count]) > _CLOSE * found[count]
        if missed:
            spans += pairwise((left, *inner, right))
    return dict(sorted(found.items()))
