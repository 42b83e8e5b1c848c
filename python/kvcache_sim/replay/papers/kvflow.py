"""KVFlow: the agent goes first whose next step is furthest away.

Source: arXiv 2507.07400 (NeurIPS'25). Steps are told by an oracle: no trace carries the graph of its agents.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence

from kvcache_sim.replay.papers.leaf_cache import Asked, Node

_NEVER = float("inf")


class KvFlow:
    """A block is worth the fewest steps of the agents whose prompts run through it; most steps go first.

    An agent's steps: the agents that have a request before its own next one. They are in the order of the
    next requests, so the number of the next request is taken in their place. Ties by LRU.
    """

    def __init__(self, requests: Sequence[Asked]) -> None:
        self._numbers: dict[int, list[int]] = {}
        for asked in requests:
            self._numbers.setdefault(asked.session, []).append(asked.number)
        self._agents: dict[int, set[int]] = {}
        self._now = -1

    def used(self, node: Node, asked: Asked) -> None:
        """Note whose prompt runs through a block."""
        self._now = asked.number
        self._agents.setdefault(node.id, set()).add(asked.session)

    def label(self, node: Node) -> Hashable:
        """Return the agents of a leaf."""
        return frozenset(self._agents[node.id])

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return minus the number of the nearest next request."""
        del oldest, now_ns
        assert isinstance(label, frozenset)
        return -min(self._next(agent) for agent in label)

    def _next(self, agent: int) -> float:
        numbers = self._numbers[agent]
        place = bisect_right(numbers, self._now)
        return numbers[place] if place < len(numbers) else _NEVER
