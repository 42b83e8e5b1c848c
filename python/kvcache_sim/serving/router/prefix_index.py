"""llm-d's index of each machine's cache: the truth, or an estimate from the prompts sent there."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.sequence import Arrival

#: Least tokens of a block of the estimate, and most tokens of a prompt that it covers.
LEAST_BLOCK_TOKENS, MOST_TOKENS = 64, 131_072
#: Hashes per machine if its number of GPU blocks is unknown.
DEFAULT_CAPACITY = 31_250
#: Weight of a block by its tier; other tiers count like the GPU (1.0).
_TIER_WEIGHTS = {"cpu": 0.8}
_UNBOUNDED = 1 << 60


class Matched(NamedTuple):
    """The part of a prompt that the index has of each machine."""

    #: Blocks by machine.
    blocks: list[int]
    #: Blocks of the prompt.
    of: int
    #: Tokens of a block.
    block_tokens: int


class PrefixIndex(Protocol):
    """An index of the prompts on each machine, updated with each choice."""

    def match(self, sequence: Arrival) -> Matched:
        """Return the indexed blocks."""
        ...

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Record the choice."""
        ...


class PreciseIndex:
    """The leading full blocks of a machine; a block below the GPU counts less, the sum cut to an integer.

    Source: precise-prefix-cache-producer of llm-d/llm-d-router at ebab6879 and
    pkg/kvcache/kvblock_scorer.go of llm-d/llm-d-kv-cache at 7be76e11 (gpu 1.0, cpu 0.8, unknown tiers 1.0).
    The source lists at most ten machines per block, this index all.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._tiered = any(view.trees)

    def match(self, sequence: Arrival) -> Matched:
        """Return the found blocks."""
        block = self._view.block_size_tokens
        found = list(self._view.look(sequence).found_blocks)
        if self._tiered:
            found = [self._weighed(m, sequence.request, blocks) for m, blocks in enumerate(found)]
        return Matched(found, sequence.prompt_num_tokens // block, block)

    def _weighed(self, machine: int, request: int, found: int) -> int:
        tree = self._view.trees[machine]
        if tree is None or not found:
            return found
        parts = tree.match_prefix(request, found)
        weights = (_TIER_WEIGHTS.get(TIERS[tier], 1.0) for tier, *_ in parts)
        return int(sum((part[2] - part[1]) * weight for part, weight in zip(parts, weights, strict=True)))

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Do nothing: the machines report their blocks."""


class EstimatedIndex:
    """LRU index of the hashes of prompts sent to each machine; it sees no evictions.

    Blocks are the cache's, of at least 64 tokens, the last partial block included. A lookup walks the blocks
    up to the first that no machine has and counts the blocks of each machine, with or without holes. It
    renews no block. The index keeps ``index_blocks`` per machine (default: the machine's GPU blocks).

    Source: approx-prefix-cache-producer of llm-d/llm-d-router at ebab6879 (plugin.go, indexer.go,
    prefixhash/hashing.go).
    """

    def __init__(self, view: RouterView) -> None:
        assert view.prompts is not None
        self._prompts = view.prompts
        self._block = max(LEAST_BLOCK_TOKENS, view.block_size_tokens)
        self._capacities = []
        for replica in view.replicas:
            blocks = replica.store.occupancy(COMPUTE).capacity_blocks
            known = blocks if blocks < _UNBOUNDED else DEFAULT_CAPACITY
            self._capacities.append(view.settings.index_blocks or known)
        self._sent: list[OrderedDict[int, None]] = [OrderedDict() for _ in view.replicas]
        #: Machines by hash: bit m for machine m.
        self._owners: dict[int, int] = {}

    def match(self, sequence: Arrival) -> Matched:
        """Return the indexed blocks; cost: O(blocks + machines that have any)."""
        keys, counts = self._keys(sequence), [0] * len(self._sent)
        mask, run = 0, 0
        for key in keys:
            owners = self._owners.get(key, 0)
            if owners != mask:
                _add(counts, mask, run)
                mask, run = owners, 0
            if not owners:
                break
            run += 1
        _add(counts, mask, run)
        return Matched(counts, len(keys), self._block)

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Make the prompt the most recent of that machine."""
        keys, bit = self._sent[machine], 1 << machine
        for key in self._keys(sequence):
            keys[key] = None
            keys.move_to_end(key)
            self._owners[key] = self._owners.get(key, 0) | bit
        while len(keys) > self._capacities[machine]:
            gone, _ = keys.popitem(last=False)
            self._owners[gone] &= ~bit
            if not self._owners[gone]:
                del self._owners[gone]

    def _keys(self, sequence: Arrival) -> list[int]:
        return self._prompts.keys(sequence, self._block, partial=True)[: MOST_TOKENS // self._block]


def _add(counts: list[int], mask: int, blocks: int) -> None:
    """Add blocks to each machine of a mask."""
    while mask and blocks:
        lowest = mask & -mask
        counts[lowest.bit_length() - 1] += blocks
        mask ^= lowest
