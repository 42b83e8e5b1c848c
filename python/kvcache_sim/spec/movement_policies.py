"""The policies of movement: fetches and writes (seed 001, "Caching Policy").

Fetch: a found run below the GPU is loaded (``always``) or recomputed (``never``). Write, per edge: ``back``
copies a block down at its eviction, ``through`` once it is ready (seed 001: "write through from GPU to CPU").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.cache.store import BlockRange
from kvcache_sim.spec.block_store import BlockStore, Part


class Plan(NamedTuple):
    """A found run with a part below the GPU, or in flight to it."""

    parts: Sequence[Part]
    #: Leading blocks that are ready on the GPU.
    ready: int
    #: Tokens that need KV.
    tokens: int

    @property
    def end(self) -> int:
        """The block after the last one found."""
        return self.parts[-1].end


def fetch_always(plan: Plan) -> int:
    """Reuse the whole run."""
    return plan.end


def fetch_never(plan: Plan) -> int:
    """Reuse only blocks that the GPU has, or is loading for another request."""
    return max((part.end for part in plan.parts if part.tier == COMPUTE), default=0)


#: Fetch policy → number of leading blocks of a plan to reuse.
FETCH: dict[str, Callable[[Plan], int]] = {"always": fetch_always, "never": fetch_never}


class WritePolicies:
    """The write policies of a machine's edges, by upper tier from the GPU down, applied to its store."""

    def __init__(self, store: BlockStore, policies: Sequence[str]) -> None:
        self._store = store
        self._through = [policy == "through" for policy in policies]
        #: True if the commits of a step are copied down at once.
        self.at_commit = self._through[0]

    def committed(self, lease: int, blocks: BlockRange, now_ns: int) -> int | None:
        """Copy blocks that a step computed down; return the move, None without one."""
        return self._store.write_through(lease, *blocks, now_ns) if self.at_commit else None

    def arrived(self, tier: int, move: int, now_ns: int) -> None:
        """Copy the blocks that a move is about to make ready on a tier further down."""
        if tier < len(self._through) and self._through[tier]:
            self._store.write_on(move, now_ns)
