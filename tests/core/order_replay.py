"""Replays of a trace over the small models of eviction orders, block by block."""

from collections import deque
from collections.abc import Hashable

import numpy as np
from eviction_orders import make_order
from kvcache_sim import _core
from kvcache_sim.policies.settings import Variant
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from order_base import Block, MayGo, Order, Ranked

Key = Hashable


class Tier:
    """Resident blocks by key, each with its parent's key and the number of its resident children."""

    def __init__(self, policy: Order, capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity
        self.blocks: dict[Key, Block] = {}
        self.parent: dict[Key, Key | None] = {}
        self.children: dict[Key, int] = {}
        self.held: set[Key] = set()
        self.evictions = 0
        self.expired = 0
        self.request = 0
        #: Whose demand evicted a block last.
        self.evicted_by: dict[Key, int] = {}

    def is_leaf(self, block: Block) -> bool:
        """Return whether no resident block lies below."""
        return self.children.get(block.key, 0) == 0

    def remove(self, block: Block) -> None:
        """Forget a block that the policy gave up."""
        del self.blocks[block.key]
        parent = self.parent.pop(block.key)
        if parent is not None:
            self.children[parent] -= 1
        self.evictions += 1
        self.evicted_by[block.key] = self.request

    def add(self, block: Block, parent: Key | None, may_go: MayGo) -> None:
        """Take a block below its parent."""
        self.blocks[block.key] = block
        self.parent[block.key] = parent
        if parent is not None:
            self.children[parent] = self.children.get(parent, 0) + 1
        self.policy.insert(block)
        self.settle(may_go)

    def use(self, new: Block, access: int, may_go: MayGo) -> None:
        """Count a use of a resident block."""
        block = self.blocks[new.key]
        block.hits += 1
        block.last_access, block.last_access_ns = access, new.last_access_ns
        self.policy.on_hit(block)
        self.settle(may_go)

    def settle(self, may_go: MayGo) -> None:
        """Remove the blocks that exceed the policy's own capacity limits."""
        while (gone := self.policy.abort(may_go)) is not None:
            self.remove(gone)

    def evict_for(self, may_go: MayGo) -> bool:
        """Evict until one more block fits."""
        while len(self.blocks) >= self.capacity:
            victim = self.policy.evict(may_go)
            if victim is None:
                return False
            self.remove(victim)
        return True


def _name(prompts: PromptBlocks, number: int) -> int:
    """Return the name of a block in a sketch."""
    return int(prompts.names[number]) if number < len(prompts.names) else number + 1


def path_of(prompts: PromptBlocks, i: int) -> list[Key]:
    """Return the keys of the blocks of request i, root first."""
    start = int(prompts.trace.id_offsets[i])
    ids = prompts.trace.block_ids[start : int(prompts.trace.id_offsets[i + 1])].tolist()
    per = prompts.blocks_per_id
    named: list[Key] = [(ids[k // per], k % per) for k in range(int(prompts.blocks[i]))]
    return named + [("private", i, k) for k in range(int(prompts.private_blocks[i]))]


def replay(
    prompts: PromptBlocks, variant: Variant, capacity: int, discipline: str, window: int = 0
) -> _core.ReplayAnswer:
    """Replay a trace; ``discipline`` is leaf-first, queue, or where a flat cache touches first (tail, root).

    ``window`` requests run at a time and hold their blocks; with 0 a request is alone while at work, and a
    plain cache of objects holds nothing.
    """
    paths = [path_of(prompts, i) for i in range(len(prompts.trace))]
    names = [[_name(prompts, number) for number in path] for path in prompts.numbered_paths()]
    capacity = min(capacity, max(1, len({key for path in paths for key in path})) + 3)
    tier = Tier(make_order(variant, capacity), capacity)
    hits, access, now_ns = [], 0, -(2**63)
    running: deque[list[Key]] = deque()
    missed: list[tuple[int, int, int]] = []
    shown: set[Key] = set()
    for i, (path, arrival_ns) in enumerate(zip(paths, prompts.trace.arrival_ns.tolist(), strict=True)):
        tier.request = i
        now_ns = max(now_ns, arrival_ns)
        if len(running) == max(1, window):
            running.popleft()
        tier.held = set().union(*running)
        for block in tier.policy.expire(now_ns):
            if block.key in tier.held:
                tier.policy.insert(block)  # a running request holds it
                continue
            tier.remove(block)
            tier.expired += 1
        found = 0
        while found < len(path) and path[found] in tier.blocks:
            found += 1
        for key in path[: int(prompts.limits[i])]:
            if key in shown and key not in tier.blocks:
                missed.append((i, tier.evicted_by.get(key, -1), 1))
        shown.update(path)
        running.append(path)
        if window or discipline not in ("tail", "root"):
            tier.held.update(path)
        counts = now_ns, found, len(path) - found
        new = [
            Block(key, depth, 1, 0, 0, *counts, name)
            for depth, (key, name) in enumerate(zip(path, names[i], strict=True))
        ]
        if discipline == "leaf-first":
            access += 1
            leaf_first(tier, new, found, access)
            hits.append(found)
        elif discipline == "queue":
            access = queue(tier, new, access)
            hits.append(found)
        else:
            touched = new[::-1] if discipline == "tail" else new
            hits.append(objects(tier, touched, access))
            access += len(path)
    return _core.ReplayAnswer(
        hits=np.array(hits, np.uint32),
        evictions=tier.evictions,
        expired=tier.expired,
        resident=len(tier.blocks),
        missed=np.array(missed, np.int64).ravel(),
    )


def leaf_first(tier: Tier, new: list[Block], found: int, access: int) -> None:
    """Insert the missing blocks that fit, then use the blocks found, both deepest first."""

    def may_go(block: Block) -> bool:
        return block.key not in tier.held and tier.is_leaf(block)

    kept = new[: found + tier.capacity - sum(key in tier.blocks for key in tier.held)]
    capacity = len(kept) - found
    if isinstance(tier.policy, Ranked):
        # keys do not change during eviction, so all victims may leave first
        while len(tier.blocks) + capacity > tier.capacity:
            victim = tier.policy.evict(may_go)
            assert victim is not None
            tier.remove(victim)
    for block in reversed(kept[found:]):
        block.last_access = block.created = access
        tier.policy.on_miss(block.key)
        tier.evict_for(may_go)
        tier.add(block, new[block.depth - 1].key if block.depth else None, may_go)
    for block in reversed(new[:found]):
        tier.use(block, access, may_go)


def objects(tier: Tier, new: list[Block], access: int) -> int:
    """Access block by block: a miss is inserted, and unheld blocks leave for it."""

    def may_go(block: Block) -> bool:
        return block.key not in tier.held

    hits = 0
    for block in new:
        access += 1
        if block.key in tier.blocks:
            hits += 1
            tier.use(block, access, may_go)
            continue
        block.last_access = block.created = access
        tier.policy.on_miss(block.key)
        if tier.evict_for(may_go):
            tier.add(block, None, may_go)
    return hits


def queue(tier: Tier, new: list[Block], access: int) -> int:
    """Make room for all that is missing, then insert or use block by block, root first."""

    def may_go(block: Block) -> bool:
        return block.key not in tier.held

    missing = sum(block.key not in tier.blocks for block in new)
    while len(tier.blocks) + missing > tier.capacity:
        victim = tier.policy.evict(may_go)
        if victim is None:
            break
        tier.remove(victim)
    for block in new:
        access += 1
        if block.key in tier.blocks:
            tier.use(block, access, may_go)
        elif len(tier.blocks) < tier.capacity:
            block.last_access = block.created = access
            tier.policy.on_miss(block.key)
            tier.add(block, None, may_go)
    return access
