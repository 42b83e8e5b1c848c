"""vLLM's CPU offloading tier with a secondary tier below it (0.33.0, ``kv_offload/tiering/manager.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from kvcache_sim.reference.engines.offload_access import Access
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.engines.ranked_lru import RankedLru
from kvcache_sim.replay.block_keys import Key


class TieredOffload(OffloadTier):
    """The CPU tier, and all it ever stored in an unbounded tier below, from where keys are promoted.

    Every promotion is complete before its request is admitted, so time plays no part.
    """

    def __init__(self, policy: str, capacity_blocks: int) -> None:
        super().__init__(policy, capacity_blocks)
        self.ranked = RankedLru(capacity_blocks) if policy == "lru" else None
        if self.ranked is not None:
            self.policy = self.ranked
        self.below = set[Key]()
        #: What each running request has missed when it wanted room: a policy learns that once.
        self.missed: dict[int, set[Key]] = {}
        self.promoted = self.given_up = 0

    def has(self, key: Key) -> bool:
        """Return whether a key is here or below."""
        return key in self.below

    def ask(self, request: int, first: int, keys: Sequence[Key]) -> int:
        """Promote leading keys until a look-up finds all of them, and return how many that are.

        ``first`` is the place of ``keys[0]`` in the prompt. A look-up takes room for each key that it misses
        from keys not being promoted, those found before too; so there may be several. Keys beyond
        the tier's room, and those that a policy keeps evicting (``given_up``), would be asked for forever.
        """
        run = list(takewhile(self.below.__contains__, keys))[: self.capacity_blocks]
        for _ in range(len(run) + 1):
            if not self._promote(request, first, run):
                return len(run)
        self.given_up += 1
        return self.leading(run)

    def _promote(self, request: int, first: int, run: Sequence[Key]) -> bool:
        """Look the keys up once; return whether any had to be promoted."""
        moving = set[Key]()
        for place, key in enumerate(run, first):
            if key in self.policy:
                continue
            self._learn(request, [key])
            victims = self.policy.store([key], moving | {key})
            if victims is None:
                break
            moving.add(key)
            self.promoted += 1
            self.evicted += len(victims)
            self.used.setdefault(request, {})[place] = key, Access.STORED
            self._access(request)
        return bool(moving)

    def load(self, request: int, places: Sequence[int], keys: Sequence[Key]) -> None:
        """Use keys that are there; what the request promoted itself counts as stored by it."""
        used = self.used.setdefault(request, {})
        for place, key in zip(places, keys, strict=True):
            used.setdefault(place, (key, Access.REUSED))
        if used:
            self._access(request)

    def offer(
        self, request: int, places: Sequence[int], keys: Sequence[Key]
    ) -> tuple[list[Key], list[Key]] | None:
        """Store keys as the CPU tier does; what it stores goes on below."""
        done = super().offer(request, places, keys)
        if done is not None:
            self.below.update(done[0])
        return done

    def finish(self, request: int) -> None:
        """Let the keys of a request count as used once more."""
        super().finish(request)
        self.missed.pop(request, None)

    def _learn(self, request: int, keys: Sequence[Key]) -> None:
        missed = self.missed.setdefault(request, set())
        self.policy.offer([key for key in keys if key not in missed])
        missed.update(key for key in keys if key not in self.policy)

    def _access(self, request: int) -> None:
        if self.ranked is not None:
            self.ranked.accessed(request, self.used[request])
