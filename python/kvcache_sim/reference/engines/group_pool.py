"""One pool of blocks for several KV cache groups, block by block: a queue and the keys, nothing clever."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvcache_sim.replay.block_keys import Key

#: The key of a block: its group, and the key of the last unit of the prompt in it.
GroupKey = tuple[int, Key]
#: Stands in a table where a group keeps no block.
NULL = 0


@dataclass(slots=True)
class GroupPool:
    """``capacity_blocks`` blocks, numbered from 1, that any group may take (vLLM's ``block_pool.py``)."""

    capacity_blocks: int
    #: Blocks without a holder, next to be taken first.
    free: OrderedDict[int, None] = field(init=False)
    holders: dict[int, int] = field(init=False)
    key_of: dict[int, GroupKey] = field(default_factory=dict)
    #: Blocks of a key; the first inserted answers.
    blocks_of: dict[GroupKey, list[int]] = field(default_factory=dict)
    #: Keys that a block has had.
    had: set[GroupKey] = field(default_factory=set)
    #: How many free blocks have a key.
    idle_keyed: int = 0
    taken: int = 0
    inserted: int = 0
    evicted: int = 0
    #: By group.
    inserted_by_group: Counter[int] = field(default_factory=Counter)
    evicted_by_group: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.free = OrderedDict.fromkeys(range(1, self.capacity_blocks + 1))
        self.holders = dict.fromkeys(self.free, 0)

    def find(self, key: GroupKey) -> int:
        """Return the block that answers for a key, or ``NULL``."""
        return self.blocks_of.get(key, [NULL])[0]

    def idle(self, blocks: Sequence[int]) -> int:
        """Return how many of some blocks stand in the queue."""
        return sum(block != NULL and self.holders[block] == 0 for block in blocks)

    def touch(self, blocks: Sequence[int]) -> None:
        """Hold blocks that were found."""
        for block in blocks:
            if block != NULL:
                self.idle_keyed -= not self.holders[block] and block in self.key_of
                self.free.pop(block, None)
                self.holders[block] += 1

    def take(self, number: int) -> list[int]:
        """Return blocks from the queue's front; those with a key lose it."""
        blocks = [self.free.popitem(last=False)[0] for _ in range(number)]
        for block in blocks:
            self.holders[block] = 1
            key = self.key_of.pop(block, None)
            if key is not None:
                self.idle_keyed -= 1
                self.evicted += 1
                self.evicted_by_group[key[0]] += 1
                self.blocks_of[key].remove(block)
                if not self.blocks_of[key]:
                    del self.blocks_of[key]
        self.taken += number
        return blocks

    def give_key(self, block: int, key: GroupKey) -> int:
        """Make a held block findable; return the block that its holder has from now on."""
        self.key_of[block] = key
        self.had.add(key)
        self.blocks_of.setdefault(key, []).append(block)
        self.inserted += 1
        self.inserted_by_group[key[0]] += 1
        return block

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back, the first given first to be taken: without a key in front, the others behind."""
        front: list[int] = []
        for block in blocks:
            self.holders[block] -= 1
            if self.holders[block] == 0:
                if block in self.key_of:
                    self.idle_keyed += 1
                    self.free[block] = None
                else:
                    front.append(block)
        for block in reversed(front):
            self.free[block] = None
            self.free.move_to_end(block, last=False)

    def keyed_free(self, groups: int) -> list[int]:
        """Return the free blocks with a key of each group."""
        counted = Counter(self.key_of[block][0] for block in self.free if block in self.key_of)
        return [counted[group] for group in range(groups)]


@dataclass(slots=True)
class MergingPool(GroupPool):
    """A pool in which a key has one block, as in a tree: who computes it again gets that one."""

    merged: int = 0

    def give_key(self, block: int, key: GroupKey) -> int:
        """Make a held block findable, or give it back for the one that already is."""
        there = self.find(key)
        if there == NULL:
            return GroupPool.give_key(self, block, key)
        if there != block:
            self.touch([there])
            self.release([block])
            self.merged += 1
        return there
