"""CacheTTL (Continuum): a session that waits for a tool is pinned for as long as that pays.

Source: arXiv 2511.02230; the rule after three accounts of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence

from kvcache_sim.replay.papers.leaf_cache import Asked, Node


def best_ttl_s(durations_s: Sequence[float], gain_s: float) -> float:
    """Return for how long to pin: the τ of 0 and past durations with the greatest P(done by τ)·gain − τ.

    ``gain_s``: what a session that is still there saves: computing or loading its context, and queueing
    (T·η + Reload). Of equals the shortest; 0 where nothing is known.
    """
    known = sorted(durations_s)
    best, longest = 0.0, 0.0
    for tau in known:
        value = bisect_right(known, tau) / len(known) * gain_s - tau
        if value > best:
            best, longest = value, tau
    return longest


class CacheTtl:
    """Blocks of pinned sessions go last, the latest session first; the others by LRU.

    ``pin_s``: for how long a request's session is pinned when the request is done. At the end of that a block
    is one like any other.
    """

    def __init__(self, pin_s: Callable[[Asked], float]) -> None:
        self._pin_s = pin_s
        self._until_ns: dict[int, int] = {}
        self._began: dict[int, int] = {}
        self._sessions: dict[int, int] = {}

    def used(self, node: Node, asked: Asked) -> None:
        """Pin the session at the first block; a block is the session's that used it last."""
        if node.parent is None:
            self._began.setdefault(asked.session, asked.number)
            self._until_ns[asked.session] = asked.at_ns + round(self._pin_s(asked) * 1e9)
        self._sessions[node.id] = asked.session

    def label(self, node: Node) -> Hashable:
        """Return the session of a leaf."""
        return self._sessions[node.id]

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return 0 for a session that is not pinned; of pinned ones the earlier is worth more."""
        del oldest
        assert isinstance(label, int)
        return 0.0 if self._until_ns[label] <= now_ns else 1.0 / (1 + self._began[label])
