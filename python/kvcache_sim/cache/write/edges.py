"""The write policies of a machine's edges, and the store whose blocks they copy down."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.cache.write.policy import WritePolicy


class WriteEdges:
    """The policy of each edge, from the gpu down, at work on one machine's store."""

    def __init__(self, store: TieredStore, policies: Sequence[WritePolicy]) -> None:
        self._store = store
        self._policies = policies
        #: Whether commits are to be told: each then ends the stretch of iterations.
        self.at_commit = policies[0].at_commit
        #: Whether the next step waits for what a commit sent.
        self.delays_step = policies[0].delays_step

    @property
    def policies(self) -> Sequence[WritePolicy]:
        """The policy of each edge, from the gpu down."""
        return self._policies

    def committed(self, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Tell of blocks [first, past the last) of a lease, shared now; return the move that copies them."""
        return self._policies[0].committed(self._store, lease, blocks, now_ns)

    def used(self, lease: int, now_ns: int) -> None:
        """Tell of a request that was admitted and holds what it reuses."""
        for policy in self._policies:
            policy.used(self._store, lease, now_ns)

    def arrived(self, tier: int, move: int, now_ns: int) -> None:
        """Tell of a copy that is about to become ready on a tier, where an edge leads further down."""
        if tier < len(self._policies):
            self._policies[tier].arrived(self._store, move, now_ns)
