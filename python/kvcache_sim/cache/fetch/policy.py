"""The contract of a fetch policy: given a plan, it returns the number of leading blocks to reuse."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvcache_sim import _core
from kvcache_sim.cache.store import NO_MOVE


class Part(NamedTuple):
    """A part of the run to reuse: its fastest tier or REMOTE, its blocks, the move still writing it."""

    tier: int
    start: int
    end: int
    by: int
    #: For REMOTE: the owner and the tier there.
    away: tuple[int, int] | None = None

    @property
    def is_ready(self) -> bool:
        """True if it can be read now."""
        return self.by == NO_MOVE


class FetchPolicy(Protocol):
    """Decides between loading and recomputing, at each admission."""

    def reuse(self, plan: _core.FetchPlan) -> int:
        """Return the number of leading blocks to reuse.

        Args:
            plan: The found run: its parts, and estimates (ns from now) of loading and computing.

        Returns:
            A number from ``plan.ready`` to ``plan.end``.
        """
        ...
