"""vLLM's CPU offloading tier (0.33.0, ``kv_offload/cpu``) in plain Python: what is found, stored and used."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvcache_sim.reference.engines.offload_access import Access
from kvcache_sim.reference.engines.offload_arc import OffloadArc
from kvcache_sim.reference.engines.offload_lru import OffloadLru
from kvcache_sim.replay.block_keys import Key

#: How many keys the counter of offers remembers (vLLM's ``max_tracker_size``).
TRACKED_KEYS = 64_000


class OffloadPolicy(Protocol):
    """Which keys stay in the tier."""

    def __contains__(self, key: Key) -> bool: ...

    def __len__(self) -> int: ...

    def offer(self, keys: Sequence[Key]) -> None:
        """Learn what is about to be stored."""

    def store(self, new: Sequence[Key], protected: set[Key]) -> list[Key] | None:
        """Insert the keys and return those evicted for them, or None (and no change) without room."""

    def access(self, keys: Sequence[Key]) -> None:
        """Learn the keys that a request has used so far, in order."""

    def finish(self, used: Sequence[tuple[Key, Access]]) -> None:
        """Refresh the keys of a finished request, which come in order."""

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


class HeldKeys:
    """Keys that are being written or read, by how many copies."""

    def __init__(self) -> None:
        self.in_use: Counter[Key] = Counter()

    def hold(self, keys: Iterable[Key]) -> None:
        """Keep keys while a copy reads or writes them."""
        self.in_use.update(keys)

    def let_be(self, keys: Iterable[Key]) -> None:
        """End a ``hold``."""
        for key in keys:
            self.in_use[key] -= 1
            if not self.in_use[key]:
                del self.in_use[key]


class OffloadTier(HeldKeys):
    """Keys under a policy, those in use by copies kept, and what each running request did with them."""

    def __init__(self, policy: str, capacity_blocks: int, store_threshold: int = 0) -> None:
        super().__init__()
        self.capacity_blocks = capacity_blocks
        self.policy: OffloadPolicy = POLICIES[policy](capacity_blocks)
        self.offers = OfferCounts(store_threshold)
        #: What each running request did with each key, by the key's place in its prompt.
        self.used: dict[int, dict[int, tuple[Key, Access]]] = {}
        self.stored = self.evicted = self.refused = 0

    def leading(self, keys: Sequence[Key]) -> int:
        """Return how many leading keys are there."""
        return next((i for i, key in enumerate(keys) if key not in self.policy), len(keys))

    def has(self, key: Key) -> bool:
        """Return whether a key is there."""
        return key in self.policy

    def ask(self, request: int, first: int, keys: Sequence[Key]) -> int:
        """Return how many leading keys a request can load; ``first`` is the first one's place."""
        return self.leading(keys)

    def load(self, request: int, places: Sequence[int], keys: Sequence[Key]) -> None:
        """Use keys that are there, which have these places in the request's prompt."""
        used = self.used.setdefault(request, {})
        used.update({place: (key, Access.REUSED) for place, key in zip(places, keys, strict=True)})
        self._access(request)

    def offer(
        self, request: int, places: Sequence[int], keys: Sequence[Key]
    ) -> tuple[list[Key], list[Key]] | None:
        """Store keys that are not there; return those stored and evicted, None where room is refused.

        The keys have these places in the request's prompt.
        """
        often = self.offers.often(keys)
        self._learn(request, often)
        new = [key for key in often if key not in self.policy]
        there = set(often) - set(new)
        victims = self.policy.store(new, set(often) | self.in_use.keys())
        missing = Access.STORED if victims is not None else Access.REFUSED
        used = self.used.setdefault(request, {})
        for place, key in zip(places, keys, strict=True):
            if key in often and (place not in used or used[place][1] is Access.REFUSED):
                used[place] = key, Access.REUSED if key in there else missing
        self._access(request)
        if victims is None:
            self.refused += 1
            return None
        self.stored += len(new)
        self.evicted += len(victims)
        return new, victims

    def finish(self, request: int) -> None:
        """Let the keys of a request count as used once more."""
        used = self.used.pop(request, {})
        self.policy.finish([used[place] for place in sorted(used)])

    def _learn(self, request: int, keys: Sequence[Key]) -> None:
        self.policy.offer(keys)

    def _access(self, request: int) -> None:
        used = self.used[request]
        self.policy.access([used[place][0] for place in sorted(used)])
