"""Requests one after another against the reference of vLLM's CPU offloading tier."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.offload_arc import OffloadArc
from kvcache_sim.reference.engines.offload_lru import OffloadLru
from kvcache_sim.reference.engines.requests import Requests
from kvcache_sim.replay.block_keys import Key

#: How many keys the counter of offers remembers (vLLM's ``max_tracker_size``).
TRACKED_KEYS = 64_000


class OffloadPolicy(Protocol):
    """Which keys stay in the tier."""

    def __contains__(self, key: Key) -> bool: ...

    def offer(self, keys: Sequence[Key]) -> None:
        """Learn what is about to be stored."""

    def store(self, new: Sequence[Key], protected: set[Key]) -> list[Key] | None:
        """Insert the keys and return those evicted for them, or None (and no change) without room."""

    def finish(self, keys: Sequence[Key], new: set[Key]) -> None:
        """Refresh the keys of a finished request."""

    def sizes(self) -> dict[str, int | float]:
        """Return figures that only this policy has."""


POLICIES: dict[str, type[OffloadLru] | type[OffloadArc]] = {"lru": OffloadLru, "arc": OffloadArc}


@dataclass(slots=True)
class OfferCounts:
    """How often each of the most recently offered keys was offered."""

    threshold: int
    counts: OrderedDict[Key, int] = field(default_factory=OrderedDict)

    def often(self, keys: Sequence[Key]) -> list[Key]:
        """Count the keys and return those offered often enough; all, below a threshold of 2."""
        if self.threshold < 2:
            return list(keys)
        for key in keys:
            count = self.counts.pop(key, 0)
            if count == 0 and len(self.counts) == TRACKED_KEYS:
                self.counts.popitem(last=False)
            self.counts[key] = count + 1
        return [key for key in keys if self.counts.get(key, 0) >= self.threshold]


def replay_offload_reference(
    requests: Requests, variant: str, capacity_blocks: int, store_threshold: int
) -> dict[str, Any]:
    """Replay every request and return what ``_core.EngineRequests.offload`` returns."""
    policy: OffloadPolicy = POLICIES[variant](capacity_blocks)
    offers, causes = OfferCounts(store_threshold), MissCauses(requests.block_size)
    hits: list[int] = []
    stored = evicted = refused = 0
    for request, n in enumerate(requests.input_tokens):
        prompt = requests.prompt(request)
        askable = prompt[: requests.limit(request)]
        found = next((i for i, key in enumerate(askable) if key not in policy), len(askable))
        hits.append(found * requests.block_size)
        causes.count(n, askable, found, policy.__contains__)
        causes.learn(prompt)
        keys = offers.often(prompt)
        policy.offer(keys)
        new = [key for key in keys if key not in policy]
        victims = policy.store(new, set(keys))
        if victims is None:
            refused += 1
            new = []
        else:
            stored += len(new)
            evicted += len(victims)
            causes.evict(request, victims)
        policy.finish(keys, set(new))
    return {
        "hits": hits,
        "stored": stored,
        "evicted": evicted,
        "refused": refused,
        "arc": policy.sizes(),
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
