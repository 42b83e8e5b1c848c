"""A prefix cache of single blocks: a leaf is evicted by its label's worth, within a label the oldest."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from kvcache_sim.errors import UsageError


class Asked(NamedTuple):
    """One request: its number, when it comes, its session (itself where it has none), class and blocks."""

    number: int
    at_ns: int
    session: int
    kind: Hashable
    ids: Sequence[int]


@dataclass(slots=True, eq=False)
class Node:
    """A resident block; ``depth`` blocks are its prefix, itself included."""

    id: int
    depth: int
    parent: Node | None
    children: int = 0
    #: Number of the last request that used it.
    last: int = -1
    #: The deepest block that was ever resident behind it, itself included; it stays when that goes.
    high_water: int = 0
    label: Hashable = None
    #: Which of its entries in the queues holds.
    version: int = 0


class LeafPolicy(Protocol):
    """What decides who goes: a label that a block gets when it becomes a leaf, and the labels' worth."""

    def used(self, node: Node, asked: Asked) -> None:
        """Take note that a request uses a block."""
        ...

    def label(self, node: Node) -> Hashable:
        """Return the queue that a leaf stands in."""
        ...

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return what the oldest leaf of a queue is worth: the least goes, of equals the least recent."""
        ...


@dataclass(slots=True)
class Served:
    """What a replay found: by request its blocks and how many of them were there."""

    blocks: list[int] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Share of all blocks that were there."""
        return sum(self.hits) / max(sum(self.blocks), 1)

    def over(self, blocks: int) -> float:
        """Share of requests with more than so many blocks to compute."""
        late = sum(n - own > blocks for n, own in zip(self.blocks, self.hits, strict=True))
        return late / max(len(self.blocks), 1)


class LeafCache:
    """Blocks by chained id; requests come one after another, each keeps its own blocks while it is served.

    Blocks are released tail first: of one request's the deepest goes first. Cost: a look at every label's
    oldest leaf an eviction.
    """

    def __init__(self, capacity_blocks: int, policy: LeafPolicy) -> None:
        self._capacity, self._policy = capacity_blocks, policy
        self._nodes: dict[int, Node] = {}
        self._queues: dict[Hashable, list[tuple[int, int, int, Node]]] = {}
        #: Whether a parent that is left without children is part of the prompt that is served.
        self._held: set[int] = set()

    def serve(self, asked: Asked) -> int:
        """Serve a request and keep its blocks; return how many of them, from the first on, were there.

        Raises UsageError for one that has more blocks than the cache.
        """
        if len(asked.ids) > self._capacity:
            raise UsageError(
                "a prompt does not fit the cache",
                "--capacity",
                str(self._capacity),
                f"{len(asked.ids)} blocks",
            )
        path: list[Node] = []
        for block in asked.ids:
            node = self._nodes.get(block)
            if node is None:
                break
            path.append(node)
        found = len(path)
        for node in path:
            node.version += 1  # held: no entry of its counts
        self._held = set(asked.ids)
        for block in asked.ids[found:]:
            if len(self._nodes) == self._capacity:
                self._evict(asked.at_ns)
            node = Node(block, len(path) + 1, path[-1] if path else None)
            if path:
                path[-1].children += 1
            self._nodes[block] = node
            path.append(node)
        for node in path:
            node.last = asked.number
            node.high_water = max(node.high_water, len(path))
            self._policy.used(node, asked)
        if path and not path[-1].children:
            self._queue(path[-1])
        return found

    def _queue(self, leaf: Node) -> None:
        leaf.version += 1
        leaf.label = self._policy.label(leaf)
        queue = self._queues.setdefault(leaf.label, [])
        heappush(queue, (leaf.last, -leaf.depth, leaf.version, leaf))

    def _evict(self, now_ns: int) -> None:
        best: tuple[float, int, int] | None = None
        victim: Node | None = None
        for label in list(self._queues):
            queue = self._queues[label]
            while queue and not self._holds(queue[0]):
                heappop(queue)
            if not queue:
                del self._queues[label]
                continue
            oldest = queue[0][3]
            key = (self._policy.worth(label, oldest, now_ns), oldest.last, -oldest.depth)
            if best is None or key < best:
                best, victim = key, oldest
        assert victim is not None, "a prompt fits, so some leaf is not its own"
        heappop(self._queues[victim.label])
        del self._nodes[victim.id]
        parent = victim.parent
        if parent is not None:
            parent.children -= 1
            if not parent.children and parent.id not in self._held:
                self._queue(parent)

    def _holds(self, entry: tuple[int, int, int, Node]) -> bool:
        _, _, version, node = entry
        return node.version == version and not node.children and self._nodes.get(node.id) is node


def replay(requests: Sequence[Asked], capacity_blocks: int, policy: LeafPolicy) -> Served:
    """Return what each request finds, one after another."""
    cache, served = LeafCache(capacity_blocks, policy), Served()
    for asked in requests:
        served.hits.append(cache.serve(asked))
        served.blocks.append(len(asked.ids))
    return served


class Lru:
    """The least recently used leaf goes first: one queue."""

    def used(self, node: Node, asked: Asked) -> None:
        """Note nothing."""

    def label(self, node: Node) -> Hashable:
        """Return the one queue."""
        del node
        return None

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return that all are alike."""
        del label, oldest, now_ns
        return 0.0
