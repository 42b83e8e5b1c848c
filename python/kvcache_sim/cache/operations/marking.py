"""A machine's store, where it can be marked by hand."""

from __future__ import annotations

from typing import cast

from kvcache_sim.cache.store import BlockStore, MarkingStore
from kvcache_sim.errors import UsageError


def marking(store: BlockStore) -> MarkingStore:
    """Return the store; UsageError for the stores of other engines' rules, which keep no tiers."""
    if not hasattr(store, "copies"):
        raise UsageError(
            "only blocks of the tree can be listed and marked", "cache.semantics", expected="tree"
        )
    return cast(MarkingStore, store)
