"""Shared work of data-parallel ranks, by a small model of the core's rule (``cluster/ranks.rs``)."""

from collections.abc import Sequence

from support.product.models import SharedTime


def shared_ns(shared: SharedTime, tokens: Sequence[int]) -> int:
    """Return the shared time in ns of a step in which the ranks have these tokens each."""
    if max(tokens) < len(shared.padded_ns):
        return int(shared.padded_ns[max(tokens)])
    return int(shared.total_ns[min(sum(tokens), len(shared.total_ns) - 1)])
