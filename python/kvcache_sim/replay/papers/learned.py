"""LPC: a prediction whether a conversation goes on decides who goes; an oracle is the bound of any predictor.

Source: Learned Prefix Caching (NeurIPS'25), after two readings of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import exp

from kvcache_sim.replay.papers.leaf_cache import Asked, Node


def still_continues(probability: float, idle_s: float, turn_interval_s: float = 100.0) -> float:
    """Return the probability that a conversation goes on after so long without a turn.

    ``probability``: as predicted at its last turn; turns come ``turn_interval_s`` apart in the mean.
    """
    decay = exp(-idle_s / turn_interval_s)
    left = probability * decay
    return left / (left + 1 - probability) if probability < 1 else 1.0


class Learned:
    """The block goes first of which the most probable of its conversations is least likely to go on.

    ``predict``: the probability of a request's session to go on. Cost: a label a session.
    """

    def __init__(self, predict: Callable[[Asked], float], turn_interval_s: float = 100.0) -> None:
        self._predict, self._interval = predict, turn_interval_s
        #: Session → (its probability, when it was told).
        self._known: dict[int, tuple[float, int]] = {}
        self._users: dict[int, set[int]] = {}

    def used(self, node: Node, asked: Asked) -> None:
        """Predict at the first block; a block belongs to all sessions that used it."""
        if node.parent is None:
            self._known[asked.session] = (self._predict(asked), asked.at_ns)
        self._users.setdefault(node.id, set()).add(asked.session)

    def label(self, node: Node) -> Hashable:
        """Return the sessions that a leaf is of."""
        return frozenset(self._users[node.id])

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return the probability of the likeliest of them."""
        del oldest
        assert isinstance(label, frozenset)
        told = [self._known[session] for session in label]
        return max(still_continues(p, (now_ns - at_ns) / 1e9, self._interval) for p, at_ns in told)


class BlockOracle:
    """The perfect prediction: blocks that nobody uses again go first, then LRU."""

    def __init__(self, requests: Sequence[Asked]) -> None:
        self._last_use = {block: asked.number for asked in requests for block in asked.ids}

    def used(self, node: Node, asked: Asked) -> None:
        """Note nothing: the future is known."""

    def label(self, node: Node) -> Hashable:
        """Return whether a later request has the block."""
        return self._last_use[node.id] > node.last

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return 1 for a block that is used again."""
        del oldest, now_ns
        return float(bool(label))
