"""Why a block of a prompt was missed in a replay: each under one cause, so the causes sum to the misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kvcache_sim.replay.block_keys import Key
from kvcache_sim.replay.miss_causes import MISS_CAUSES

#: The names of the causes, in the order of the columns.
CAUSES = tuple(cause.name for cause in MISS_CAUSES)


@dataclass(slots=True)
class MissCauses:
    """Counts misses by cause, block by block."""

    block_size: int
    seen: set[Key] = field(default_factory=set)
    #: Ids after which some request went on with another id.
    went_on: set[object] = field(default_factory=set)
    #: Who evicted a key last.
    evicted_by: dict[Key, int] = field(default_factory=dict)
    #: Tokens by cause, a row a request.
    tokens: list[list[int]] = field(default_factory=list)
    #: Request, who evicted, blocks: neighbours that agree are one entry.
    evicted_misses: list[list[int]] = field(default_factory=list)

    def count(self, n: int, keys: Sequence[Key], hits: int, resident: Callable[[Key], bool]) -> None:
        """Count the misses of a prompt of ``n`` tokens whose blocks that may hit are ``keys``."""
        request = len(self.tokens)
        counts = dict.fromkeys(CAUSES, 0)
        counts["shorter"] = n - len(keys) * self.block_size
        novelty, before = "", "not_admitted"
        for block in range(hits, len(keys)):
            key = keys[block]
            if key not in self.seen:
                novelty = novelty or self._novelty(keys, block)
                before = novelty
            elif not resident(key):
                before = "evicted" if key in self.evicted_by else "not_admitted"
                if before == "evicted":
                    self.evicted_misses.append([request, self.evicted_by[key], 1])
            counts[before] += self.block_size
        self.tokens.append([counts[cause] for cause in CAUSES])

    def _novelty(self, keys: Sequence[Key], block: int) -> str:
        key = keys[block]
        starts_an_id = len(key) == 2 and key[1] == 0 and block > 0
        return "diverged" if starts_an_id and keys[block - 1][0] in self.went_on else "never_seen"

    def reject(self) -> None:
        """Take the counts of the last request back: it neither hit nor missed."""
        request = len(self.tokens) - 1
        self.tokens[-1] = [0] * len(CAUSES)
        self.evicted_misses = [miss for miss in self.evicted_misses if miss[0] != request]

    def learn(self, keys: Sequence[Key]) -> None:
        """Take notice of the blocks of a request."""
        named = [key for key in keys if len(key) == 2]
        for key in named:
            # a continuation may name the middle of an id whose start was never shown: nobody reaches it
            if key[1] == 0 or (key[0], int(key[1]) - 1) in self.seen:
                self.seen.add(key)
        self.went_on.update(a[0] for a, b in pairwise(named) if a[0] != b[0])

    def evict(self, request: int, keys: Sequence[Key]) -> None:
        """Note that the demand of ``request`` evicted the keys."""
        self.evicted_by.update(dict.fromkeys(keys, request))
