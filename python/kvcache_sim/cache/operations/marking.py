"""A machine's store, if it supports manual marks."""

from __future__ import annotations

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.tree_store import MarkingStore


def marking(tree: MarkingStore | None) -> MarkingStore:
    """Return a machine's tree; UsageError for stores with an engine's rules, which keep no tiers."""
    if tree is None:
        raise UsageError(
            "only blocks of the tree can be listed and marked", "cache.semantics", expected="tree"
        )
    return tree
