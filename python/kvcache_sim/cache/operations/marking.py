"""A machine's store, where it can be marked by hand."""

from __future__ import annotations

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.errors import UsageError


def marking(mover: Mover) -> MarkingStore:
    """Return a machine's store; UsageError for the stores of other engines' rules, which keep no tiers."""
    if mover.tree is None:
        raise UsageError(
            "only blocks of the tree can be listed and marked", "cache.semantics", expected="tree"
        )
    return mover.tree
