"""Workload-aware eviction: the class goes first whose blocks are least likely to come again soon.

Source: KVCache Cache in the Wild (arXiv 2506.02634, ATC'25) and its vLLM pull request 22236: the rules of the
profile are read there (``profiler_utils.py``); the form of the probability and the life are a reading of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, expm1, inf, log

from kvcache_sim.replay.papers.leaf_cache import Asked, Node
from kvcache_sim.units import NS_PER_S

#: Reuses that come sooner are system prompts and do not count, in s.
_TOO_SOON_S = 0.3


@dataclass(frozen=True, slots=True)
class ClassProfile:
    """How blocks of a class come again: a rate a second, and the share that does."""

    rate_per_s: float
    share: float

    def probability(self, idle_s: float, life_s: float) -> float:
        """Return the probability of a reuse within ``life_s`` of a block that was used so long ago."""
        return self.share * (exp(-self.rate_per_s * idle_s) - exp(-self.rate_per_s * (idle_s + life_s)))

    def log_probability(self, idle_s: float, life_s: float) -> float:
        """Return its logarithm, also where the probability itself is too small for a number."""
        if self.share <= 0 or self.rate_per_s <= 0:
            return -inf
        return log(self.share) + log(-expm1(-self.rate_per_s * life_s)) - self.rate_per_s * idle_s


def profiles(requests: Sequence[Asked]) -> dict[Hashable, ClassProfile]:
    """Return the profile of each class in an unbounded cache.

    A reuse counts for the class that used the block before. Rate: 1 / (mean − least) of the times to reuse,
    an exponential with a free start; 1 / mean where all are equal; 0 without any.
    """
    before: dict[int, tuple[Hashable, int]] = {}
    touches: dict[Hashable, int] = {}
    times: dict[Hashable, list[float]] = {}
    for asked in requests:
        for block in asked.ids:
            touches[asked.kind] = touches.get(asked.kind, 0) + 1
            if block in before:
                kind, at_ns = before[block]
                passed = (asked.at_ns - at_ns) / NS_PER_S
                if passed > _TOO_SOON_S:
                    times.setdefault(kind, []).append(passed)
            before[block] = (asked.kind, asked.at_ns)
    return {kind: fitted(times.get(kind, []), count) for kind, count in touches.items()}


def fitted(times_s: Sequence[float], touches: int) -> ClassProfile:
    """Return the profile of a class by its times to reuse and how often its blocks were used."""
    if not times_s:
        return ClassProfile(0.0, 0.0)
    mean = sum(times_s) / len(times_s)
    spread = mean - min(times_s)
    return ClassProfile(1 / (spread if spread > 1e-12 * mean else mean), len(times_s) / touches)


class WorkloadAware:
    """One LRU queue a class; of their oldest leaves that goes which is least likely to be used within a life.

    ``life_s``: how long a block is expected to stay. A class that the profile has not seen is worth most.
    """

    def __init__(self, known: Mapping[Hashable, ClassProfile], life_s: float) -> None:
        self._known, self._life_s = known, life_s
        self._uses: dict[int, tuple[Hashable, int]] = {}

    def used(self, node: Node, asked: Asked) -> None:
        """A block is of the class that used it last."""
        self._uses[node.id] = (asked.kind, asked.at_ns)

    def label(self, node: Node) -> Hashable:
        """Return the class of a leaf."""
        return self._uses[node.id][0]

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return the logarithm of its probability."""
        profile = self._known.get(label)
        if profile is None:
            return 0.0
        return profile.log_probability((now_ns - self._uses[oldest.id][1]) / NS_PER_S, self._life_s)
