"""SGLang's radix tree, page by page: nodes are runs of pages, leaves are evicted whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvcache_sim.replay.block_keys import Key


@dataclass(slots=True, eq=False)
class Node:
    """A run of pages below its parent; the root has none."""

    key: list[Key]
    parent: Node | None
    last_access: int
    creation: int
    hit_count: int = 0
    locks: int = 0
    children: dict[Key, Node] = field(default_factory=dict)

    def path(self) -> list[Node]:
        """Return this node and those above it, the root last."""
        path = [self]
        while (above := path[-1].parent) is not None:
            path.append(above)
        return path

    def end(self) -> int:
        """Return the pages from the root to the end of this node."""
        return sum(len(node.key) for node in self.path())


#: What a leaf is worth under each policy; the smallest is evicted first.
PRIORITIES: dict[str, Callable[[Node], tuple[float, ...]]] = {
    "lru": lambda node: (node.last_access,),
    "lfu": lambda node: (node.hit_count, node.last_access),
    "fifo": lambda node: (node.creation,),
    "mru": lambda node: (-node.last_access,),
    "filo": lambda node: (-node.creation,),
    "slru": lambda node: (int(node.hit_count >= 2), node.last_access),
    "hpt": lambda node: ((node.hit_count + 1) / max(len(node.key), 1), node.last_access),
}


@dataclass(slots=True)
class SglangTree:
    """SGLang 0.5.23's classic ``RadixCache`` (``srt/mem_cache/radix_cache.py``), counted in pages.

    Every new node takes two ticks of the clock, every walk one. Eviction searches the whole tree for its
    next leaf: this is the oracle of the core's tree, not its rival.
    """

    policy: str
    clock: int = 0
    root: Node = field(init=False)
    evicted: list[Key] = field(default_factory=list)
    evicted_nodes: int = 0

    def __post_init__(self) -> None:
        self.root = self._new([], None)
        self.root.locks = 1

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _new(self, key: list[Key], parent: Node | None) -> Node:
        return Node(key, parent, self._tick(), self._tick())

    def _split(self, child: Node, pages: int) -> Node:
        """Put a new node with the first ``pages`` pages above ``child``, which keeps its times."""
        parent = child.parent
        assert parent is not None
        upper = self._new(child.key[:pages], parent)
        upper.hit_count, upper.locks = child.hit_count, child.locks
        parent.children[upper.key[0]] = upper
        child.key, child.parent = child.key[pages:], upper
        upper.children[child.key[0]] = child
        return upper

    def _walk(self, key: Sequence[Key]) -> list[tuple[Node, int]]:
        """Touch and, at its end, split the path of ``key``; return its nodes with the pages walked so far."""
        now, node, walked, path = self._tick(), self.root, 0, []
        node.last_access = now
        while walked < len(key) and key[walked] in node.children:
            node = node.children[key[walked]]
            node.last_access = now
            common = 0
            while common < min(len(node.key), len(key) - walked) and node.key[common] == key[walked + common]:
                common += 1
            walked += common
            if common < len(node.key):
                node = self._split(node, common)
            path.append((node, walked))
        return path

    def peek(self, key: Sequence[Key]) -> int:
        """Return how many leading pages are in the tree; nothing changes."""
        node, walked = self.root, 0
        while walked < len(key) and key[walked] in node.children:
            node = node.children[key[walked]]
            for page in node.key:
                if walked == len(key) or page != key[walked]:
                    return walked
                walked += 1
        return walked

    def match(self, key: Sequence[Key]) -> tuple[Node, int]:
        """Return the deepest node of the longest known prefix, split to fit, and its pages."""
        path = self._walk(key) if key else []
        return path[-1] if path else (self.root, 0)

    def insert(self, key: Sequence[Key], done: int) -> int:
        """Add ``key`` and return how many of its pages were there; walked nodes past ``done`` count a hit."""
        path = self._walk(key) if key else []
        for node, walked in path:
            if walked > done:
                node.hit_count += 1
        node, walked = path[-1] if path else (self.root, 0)
        if walked < len(key):
            leaf = self._new(list(key[walked:]), node)
            leaf.hit_count = int(len(key) > done)
            node.children[key[walked]] = leaf
        return walked

    def lock(self, node: Node, step: int) -> None:
        """Add ``step`` (1 or -1) to the locks from ``node`` up to the root."""
        above: Node | None = node
        while above is not None and above is not self.root:
            above.locks += step
            above = above.parent

    def nodes(self) -> list[Node]:
        """Return all nodes but the root."""
        found, queue = [], [self.root]
        while queue:
            children = list(queue.pop().children.values())
            found += children
            queue += children
        return found

    def leaves(self) -> list[Node]:
        """Return the leaves that may be evicted, next to leave first."""
        free = [node for node in self.nodes() if not node.children and node.locks == 0]
        return sorted(free, key=PRIORITIES[self.policy])

    def evictable_pages(self) -> int:
        """Return the pages of all nodes without a lock."""
        return sum(len(node.key) for node in self.nodes() if node.locks == 0)

    def evict(self, pages: int) -> int:
        """Evict whole leaves until ``pages`` are free or none is left; return the pages freed."""
        freed = 0
        while freed < pages and (leaves := self.leaves()):
            leaf = leaves[0]
            assert leaf.parent is not None
            del leaf.parent.children[leaf.key[0]]
            freed += len(leaf.key)
            self.evicted += leaf.key
            self.evicted_nodes += 1
        return freed

    def check(self, held: Sequence[Node]) -> None:
        """Raise RuntimeError where links are wrong, or locks are not one for each ``held`` node below."""
        nodes, locks = self.nodes(), Counter[int]()
        for above in (node for last in held for node in last.path()):
            locks[id(above)] += 1
        for parent in [self.root, *nodes]:
            for first, node in parent.children.items():
                if node.parent is not parent or not node.key or node.key[0] != first:
                    raise RuntimeError("a node does not follow its parent")
        for node in nodes:
            if node.locks != locks.pop(id(node), 0):
                raise RuntimeError(f"I3: a node has {node.locks} locks, not one for each holder")
        if set(locks) - {id(self.root)}:
            raise RuntimeError("I3: a request holds a node that is gone")
