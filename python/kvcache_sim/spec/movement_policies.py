"""The policies of movement: what is fetched and written (seed 001, "Caching Policy").

Fetch: a found run that lies below the GPU is loaded (``always``) or recomputed (``never``). Write, for each
edge: ``back`` copies a block down when it is evicted, ``through`` as soon as it is there (seed 001: "write
through from GPU to CPU").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvcache_sim.spec.mover import Part
from kvcache_sim.tiers import COMPUTE

if TYPE_CHECKING:
    from kvcache_sim._core import Store


class Plan(NamedTuple):
    """A found run of which a part lies below the GPU, or is on its way there."""

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
    """Reuse what the GPU has, or is getting for another request."""
    return max((part.end for part in plan.parts if part.tier == COMPUTE), default=0)


#: Fetch policy → how many leading blocks of a plan are reused.
FETCH: dict[str, Callable[[Plan], int]] = {"always": fetch_always, "never": fetch_never}


class WritePolicies:
    """The write policy of each edge of a machine, by upper tier from the GPU down, at work on its store."""

    def __init__(self, store: Store, policies: Sequence[str]) -> None:
        self._store = store
        self._through = [policy == "through" for policy in policies]
        #: Whether what a step commits is copied down at once.
        self.at_commit = self._through[0]

    def committed(self, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Copy blocks [first, past the last) that a step computed; return the move, None without one."""
        return self._store.write_through(lease, *blocks, now_ns) if self.at_commit else None

    def arrived(self, tier: int, move: int, now_ns: int) -> None:
        """Copy on what a move is about to make ready on a tier."""
        if tier < len(self._through) and self._through[tier]:
            self._store.write_on(move, now_ns)
