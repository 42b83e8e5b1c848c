"""One machine's store under every contract that it fulfils."""

from __future__ import annotations

from kvcache_sim.cache.group_store import GroupStore, LoadingGroupStore
from kvcache_sim.cache.store import (
    GpuStore,
    KeepsSessions,
    LoadingStore,
    MovingStore,
    OffersComputed,
    PrefetchingStore,
    SharesPrefixes,
)
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class MachineStore:
    """One machine's store under the contracts that it fulfils.

    ``tree`` is the same store where it is a tree of blocks, which may lie on lower tiers and be marked by
    hand; ``sessions`` the same where it counts in Python the tokens that sessions keep; ``groups`` the same
    where it is a pool of several cache groups.
    """

    gpu: GpuStore
    tree: MarkingStore | None = None
    sessions: KeepsSessions | None = None
    #: The same store where its shared prefixes are entries of their own.
    prefixes: SharesPrefixes | None = None
    groups: GroupStore | None = None
    #: The same store where blocks may lie below the GPU: a tree's, or an engine's with a tier of its own.
    loading: LoadingStore | None = None
    #: The same store where it is a pool of several cache groups with a tier below.
    loading_groups: LoadingGroupStore | None = None
    #: The same store where it copies down what steps compute by an engine's rules.
    offers: OffersComputed | None = None
    #: The same store where it brings up by an engine's rules what waiting requests need.
    prefetching: PrefetchingStore | None = None

    @property
    def moving(self) -> MovingStore | None:
        """The same store where blocks move between tiers."""
        return self.loading or self.loading_groups
