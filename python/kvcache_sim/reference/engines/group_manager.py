"""vLLM's manager of several KV cache groups in one pool, one step of one request at a time, in plain Python.

Rules: vLLM 0.33.0, ``HybridKVCacheCoordinator`` and ``KVCacheManager.allocate_slots`` (watermark 0, no
speculation). The reference of the core's ``engines/groups``; its costs grow with the length of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kvcache_sim.cache.groups import GroupRules
from kvcache_sim.model.kv_groups import KvGroup
from kvcache_sim.reference.engines.group_pool import NULL, GroupKey, GroupPool
from kvcache_sim.reference.engines.group_rules import (
    admission_blocks,
    cdiv,
    hit_blocks,
    retained,
    skipped_blocks,
)
from kvcache_sim.replay.block_keys import BlockKeys


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The engine's settings: tokens of a step, of the longest sequence, between kept checkpoints.

    ``retention_interval``: None keeps a checkpoint at every aligned boundary, 0 only where a prompt ends or
    parted from what was found, R besides one every R tokens.
    """

    max_num_batched_tokens: int
    retention_interval: int | None
    max_model_len: int


#: Whether all of some groups have block k of a request's.
Has = Callable[[int, list[int]], bool]


@dataclass(frozen=True, slots=True)
class JointHit:
    """How far all groups can go on, how far the farthest one could, and the blocks that each uses."""

    tokens: int
    longest: int
    used: dict[int, range]


@dataclass(frozen=True, slots=True)
class Found:
    """What a look-up found: ``tokens`` of the prompt, the groups' blocks of them, and where it parted.

    ``junction_tokens`` is how far some group could have gone beyond the pool's joint hit, 0 without. The
    pool's ``blocks`` are of its ``pool_tokens``; a tier below has the rest.
    """

    tokens: int
    blocks: tuple[list[int], ...]
    junction_tokens: int
    pool_tokens: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an admission may take: free blocks that it leaves, tokens that must fit besides its first chunk.

    These fit as far as a group holds them at one time: behind a window what steps under way compute, at most
    ``in_flight_tokens``. None: the first chunk decides alone.
    """

    whole_tokens: int | None
    in_flight_tokens: int
    kept_blocks: int = 0


@dataclass(slots=True)
class Tables:
    """The blocks of a request, a list a group; how many of each have been through the key step.

    Besides how many were given back since nobody reads them any more.
    """

    boundaries: list[int]
    blocks: list[list[int]]
    keyed: list[int]
    gone: list[int]
    computed: int = 0


@dataclass(slots=True)
class GroupManager:
    """The pool, the tables of the running requests, and the five steps that a request takes."""

    keys: BlockKeys
    groups: tuple[KvGroup, ...]
    align: int
    limits: GroupLimits
    pool: GroupPool
    tables: dict[int, Tables] = field(default_factory=dict)
    rules: GroupRules = "vllm"
    #: Keys of states that got them in the step that is being composed.
    states_of_step: set[GroupKey] = field(default_factory=set)

    def key(self, group: int, request: int, block: int) -> GroupKey:
        """Return the key of a group's block: that of the last unit in it."""
        unit = self.keys.block_size_tokens
        return group, self.keys.key(request, (block + 1) * self.groups[group].block_size_tokens // unit - 1)

    def look_up(self, request: int, limit: int) -> Found:
        """Return the joint hit of at most ``limit`` tokens; nothing changes."""
        hit = self.joint_hit(limit, lambda k, numbers: self._present(request, k, numbers))
        return Found(
            hit.tokens,
            self.blocks_of(request, hit),
            hit.longest if hit.longest > hit.tokens else 0,
            hit.tokens,
        )

    def blocks_of(self, request: int, hit: JointHit) -> tuple[list[int], ...]:
        """Return the pool's blocks of a hit by group; ``NULL`` where none is used, or the pool has none."""
        return tuple(self._table(request, n, hit.used[n], hit.tokens) for n in range(len(self.groups)))

    def joint_hit(self, limit: int, has: Has) -> JointHit:
        """Return the joint hit of at most ``limit`` tokens over what ``has`` says is there."""
        kinds: dict[tuple[str, int, int], list[int]] = {}
        for number, group in enumerate(self.groups):
            kinds.setdefault((group.kind, group.block_size_tokens, group.reach_tokens), []).append(number)
        ordered = sorted(kinds.values(), key=lambda numbers: self.groups[numbers[0]].kind != "full")
        once = len(ordered) <= 2 and self.groups[ordered[0][0]].kind == "full"
        hit, longest = limit, 0
        used: dict[int, range] = {}
        full: dict[int, int] = {}
        while True:
            current = hit
            for numbers in ordered:
                group = self.groups[numbers[0]]
                if numbers[0] in full:
                    current = min(current, full[numbers[0]])
                    continue
                found = hit_blocks(group, current, self.align, lambda k: has(k, numbers))  # noqa: B023
                current = found.stop * group.block_size_tokens
                longest = max(longest, current)
                for number in numbers:
                    used[number] = found
                if group.kind == "full":
                    full[numbers[0]] = current
            shorter, hit = current < hit, current
            if not shorter or once or not hit:
                return JointHit(hit, longest, used)

    def alone(self, request: int, number: int, limit: int) -> int:
        """Return the hit of at most ``limit`` tokens that a group with those of its kind would give alone."""
        group = self.groups[number]
        kind = group.kind, group.block_size_tokens, group.reach_tokens
        kinds = [(one.kind, one.block_size_tokens, one.reach_tokens) for one in self.groups]
        same = [other for other, one in enumerate(kinds) if one == kind]
        found = hit_blocks(group, limit, self.align, lambda k: self._present(request, k, same))
        return found.stop * group.block_size_tokens

    def _present(self, request: int, block: int, numbers: list[int]) -> bool:
        return all(self.pool.find(self.key(number, request, block)) for number in numbers)

    def _table(self, request: int, number: int, used: range, hit: int) -> list[int]:
        """Return a group's blocks up to a hit, ``NULL`` where none is used."""
        size = self.groups[number].block_size_tokens
        return [
            self.pool.find(self.key(number, request, k)) if k in used else NULL for k in range(hit // size)
        ]

    def admit(self, request: int, prompt: int, found: Found, end: int, allowed: Allowance) -> bool:
        """Hold what was found and room up to ``end`` tokens, or change nothing.

        Another request can go on from where the prompt ends.
        """
        needed = self._admission(found, end, None)
        if allowed.whole_tokens is not None:
            needed = max(needed, self._admission(found, allowed.whole_tokens, allowed.in_flight_tokens))
        if needed > max(len(self.pool.free) - allowed.kept_blocks, 0):
            return False
        tables = Tables([prompt - 1, found.junction_tokens][: 2 if found.junction_tokens else 1], [], [], [])
        for group, blocks in zip(self.groups, found.blocks, strict=True):
            start = min(skipped_blocks(group, found.tokens), len(blocks))
            self.pool.touch(blocks[start:])
            tables.blocks.append([NULL] * start + blocks[start:])
            tables.keyed.append(len(blocks))
            tables.gone.append(start)
        for group, blocks in zip(self.groups, tables.blocks, strict=True):
            start, hit = skipped_blocks(group, found.tokens), found.tokens // group.block_size_tokens
            for place in range(min(start, len(blocks)), len(blocks)):
                if blocks[place] == NULL:  # it comes from a tier below
                    blocks[place : place + 1] = self.pool.take(1)
            blocks += [NULL] * (start - len(blocks))
            blocks += self.pool.take(hit - len(blocks))
        self.tables[request] = tables
        tables.computed = found.tokens
        self._take(tables, end)
        return True

    def lost(self, request: int, found: Found) -> Iterator[tuple[int, bool]]:
        """Yield the groups that could not go on from where another could, and whether for want of keeping.

        What such a group needs there was never kept, its window having moved on or its state not being a
        checkpoint; or, False, it was evicted.
        """
        end = found.junction_tokens
        for number, group in enumerate(self.groups if end > found.tokens else ()):
            blocks = end // group.block_size_tokens
            # a window of one token reads no block, yet its look-up asks for the last one
            needed = range(min(skipped_blocks(group, end), blocks - 1), blocks)
            keys = [self.key(number, request, block) for block in needed]
            missing = [key for key in keys if self.pool.find(key) == NULL]
            if missing:
                yield number, any(key not in self.pool.had for key in missing)

    def is_computed_now(self, request: int, hit: int) -> bool:
        """Whether the state at a hit of so many tokens is computed in the step that is being composed."""
        return hit > 0 and any(
            self.key(number, request, hit // group.block_size_tokens - 1) in self.states_of_step
            for number, group in enumerate(self.groups)
            if group.kind == "linear"
        )

    def _admission(self, found: Found, tokens: int, in_flight: int | None) -> int:
        needed = 0
        for group, blocks in zip(self.groups, found.blocks, strict=True):
            total, hit = cdiv(tokens, group.block_size_tokens), found.tokens // group.block_size_tokens
            start = skipped_blocks(group, found.tokens)
            needed += blocks[start:].count(NULL)
            if group.kind == "linear":
                held = self.pool.idle(blocks) if hit == len(blocks) else 1
                needed += min(1, max(0, total - hit)) + held
                continue
            if in_flight is not None:
                total = admission_blocks(group, tokens, in_flight, self.limits.max_model_len)
            needed += max(0, total - max(start, len(blocks))) + self.pool.idle(blocks[start:])
        return needed

    def extend(self, request: int, end: int) -> bool:
        """Free what left the windows, then take room up to ``end`` tokens; a failure undoes no freeing."""
        self.drop_unread(request)
        if self.lacking(request, end) > len(self.pool.free):
            return False
        self.take(request, end)
        return True

    def drop_unread(self, request: int) -> None:
        """Free what nobody reads any more."""
        tables, unread = self.tables[request], list[dict[int, int]]()
        for number, (group, blocks) in enumerate(zip(self.groups, tables.blocks, strict=True)):
            before, gone = tables.gone[number], min(skipped_blocks(group, tables.computed), len(blocks))
            unread.append({place: blocks[place] for place in range(before, gone)})
            if gone > before:
                blocks[before:gone] = [NULL] * (gone - before)
                tables.gone[number] = gone
        self._let_go(unread)

    def _let_go(self, by_group: list[dict[int, int]]) -> None:
        """Give back blocks of each group by their places: group by group, each last to first, or as a tree.

        Of the tree those go first that end last; of blocks that end together an earlier group's.
        """
        ends = [
            (-(place + 1) * group.block_size_tokens, number, block)
            for number, (group, blocks) in enumerate(zip(self.groups, by_group, strict=True))
            for place, block in reversed(blocks.items())
            if block != NULL
        ]
        if self.rules == "tree":
            self.pool.release([block for _, _, block in sorted(ends)])
            return
        for number in range(len(self.groups)):
            self.pool.release([block for _, of, block in ends if of == number])

    def lacking(self, request: int, end: int) -> int:
        """Return how many blocks room up to ``end`` tokens takes."""
        tables, needed = self.tables[request], 0
        for group, blocks in zip(self.groups, tables.blocks, strict=True):
            more = max(0, cdiv(end, group.block_size_tokens) - len(blocks))
            needed += min(1, more) if group.kind == "linear" else more
        return needed

    def take(self, request: int, end: int) -> None:
        """Take room up to ``end`` tokens, for which there are free blocks."""
        self._take(self.tables[request], end)

    def _take(self, tables: Tables, end: int) -> None:
        for group, blocks in zip(self.groups, tables.blocks, strict=True):
            more = max(0, cdiv(end, group.block_size_tokens) - len(blocks))
            if more and group.kind == "linear":
                blocks += [NULL] * (more - 1)
                more = 1
            blocks += self.pool.take(more)

    def compute(self, request: int, end: int) -> None:
        """Note that ``end`` tokens are computed: full blocks that are kept get their keys."""
        self.tables[request].computed = end
        self.give_keys(request, end)

    def give_keys(self, request: int, end: int) -> None:
        """Give the full blocks of the first ``end`` tokens their keys, those that are kept."""
        tables = self.tables[request]
        for number, (group, blocks) in enumerate(zip(self.groups, tables.blocks, strict=True)):
            full = end // self.align * self.align // group.block_size_tokens
            for block in range(tables.keyed[number], full):
                kept = retained(group, block, self.align, self.limits.retention_interval, tables.boundaries)
                if kept and blocks[block] != NULL:
                    key = self.key(number, request, block)
                    blocks[block] = self.pool.give_key(blocks[block], key)
                    if group.kind == "linear":
                        self.states_of_step.add(key)
            tables.keyed[number] = max(tables.keyed[number], full)

    def release(self, request: int) -> None:
        """Release all blocks."""
        self._let_go([dict(enumerate(blocks)) for blocks in self.tables.pop(request).blocks])
