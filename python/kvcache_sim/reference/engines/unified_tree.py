"""SGLang's default tree with HiCache, page by page: nodes are runs on the device, the host or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from kvcache_sim.reference.engines.hicache_storage import Storage
from kvcache_sim.replay.block_keys import Key

#: A time, and how many steps above the matched node: parents are older than their children.
Time = tuple[int, int]
#: Hits at which a node is written to the host; write_back counts none.
THRESHOLDS = {"": None, "write_through": 1, "write_through_selective": 2, "write_back": None}


@dataclass(slots=True, eq=False)
class Node:
    """A run of pages below its parent; the root has none."""

    key: list[Key]
    parent: Node | None
    last: Time
    made: int
    hits: int = 0
    priority: int = 0
    locks: int = 0
    #: Copies with the storage that need the host's copy.
    host_locks: int = 0
    device: bool = True
    host: bool = False
    #: Pages to the end of the deepest leaf that was ever inserted here or below.
    history: int = 0
    children: dict[Key, Node] = field(default_factory=dict)

    def path(self) -> list[Node]:
        """Return this node and those above it, the root left out."""
        path, node = [], self
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path

    def end(self) -> int:
        """Return the pages from the root to the end of this node."""
        return sum(len(node.key) for node in self.path())

    def below(self) -> Iterator[Node]:
        """Yield every node below this one."""
        for child in self.children.values():
            yield child
            yield from child.below()


def worths(page: int, threshold: int, next_prompt: int) -> dict[str, Callable[[Node], tuple[object, ...]]]:
    """Return what a leaf is worth under each strategy; the smallest is evicted first."""

    def tlru(node: Node) -> tuple[object, ...]:
        budget = max(node.history * page + next_prompt - threshold, 0)
        is_safe = (node.end() - len(node.key)) * page >= budget
        return (not is_safe, node.last)

    return {
        "lru": lambda node: (node.last,),
        "lfu": lambda node: (node.hits, node.last),
        "fifo": lambda node: (node.made,),
        "mru": lambda node: tuple(-part for part in node.last),
        "filo": lambda node: (-node.made,),
        "slru": lambda node: (node.hits >= 2, node.last),
        "hpt": lambda node: ((node.hits + 1) / max(len(node.key), 1), node.last),
        "priority": lambda node: (node.priority, node.last),
        "tlru": tlru,
    }


@dataclass(slots=True)
class UnifiedTree:
    """SGLang 0.5.23's ``UnifiedRadixCache`` (``srt/mem_cache/unified_radix_cache.py``), full attention alone.

    Eviction searches the whole tree for its next leaf: this is the oracle of the core's tree, not its rival.
    """

    worth: Callable[[Node], tuple[object, ...]]
    #: "" is no host tier.
    write_policy: str
    host_free: int
    ticks: Iterator[int] = field(default_factory=lambda: count(1))
    root: Node = field(init=False)
    #: Nodes on both tiers in the order in which they came to be (write_back); entries may be out of date.
    duplicates: list[Node] = field(default_factory=list)
    #: Pages that left both tiers.
    gone: list[Key] = field(default_factory=list)
    evicted_pages: int = 0
    evicted_leaves: int = 0
    written: int = 0
    #: Nodes that were written to the host with their pages then, until someone takes them.
    copied: list[tuple[Node, list[Key]]] = field(default_factory=list)
    host_evicted: int = 0
    host_evicted_leaves: int = 0
    #: Below the host; every page written to the host goes there too.
    storage: Storage | None = None

    def __post_init__(self) -> None:
        self.root = self._new([], None)
        self.root.priority = -1

    def _now(self) -> Time:
        return (next(self.ticks), 0)

    def _new(self, key: list[Key], parent: Node | None) -> Node:
        return Node(key, parent, self._now(), next(self.ticks))

    def _split(self, child: Node, pages: int) -> Node:
        """Put a new node with the first ``pages`` pages above ``child``."""
        assert child.parent is not None
        upper = self._new(child.key[:pages], child.parent)
        for name in ("made", "hits", "priority", "locks", "host_locks", "device", "host", "history"):
            setattr(upper, name, getattr(child, name))
        child.parent.children[upper.key[0]] = upper
        child.key, child.parent = child.key[pages:], upper
        upper.children[child.key[0]] = child
        child.last = self._now()
        self._register(upper)
        return upper

    def _register(self, node: Node) -> None:
        if self.write_policy == "write_back" and node.device and node.host and node not in self.duplicates:
            self.duplicates.append(node)

    @staticmethod
    def _common(node: Node, key: Sequence[Key]) -> int:
        pairs = zip(node.key, key, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(node.key), len(key)))

    def match(self, key: Sequence[Key]) -> Node:
        """Return the deepest node of the longest known prefix, split to fit; its path becomes most recent."""
        node = self.root
        if not key:
            return node
        while key and (child := node.children.get(key[0])) is not None:
            common = self._common(child, key)
            node = child if common == len(child.key) else self._split(child, common)
            if node is not child:
                break
            key = key[common:]
        now, _ = self._now()
        for steps, above in enumerate(node.path()):
            above.last = (now, -steps)
        return node

    def insert(self, key: Sequence[Key], counted: int, protected: int, priority: int) -> tuple[Node, int]:
        """Add ``key``; return the node it ends at and its duplicates beyond ``protected`` pages."""
        node, walked, duplicates, total = self.root, 0, 0, len(key)
        self._now()
        node.priority = max(node.priority, priority)
        while key and (child := node.children.get(key[0])) is not None:
            child.last = self._now()
            common = self._common(child, key)
            node = child if common == len(child.key) else self._split(child, common)
            node.priority = max(node.priority, priority)
            if node.device:
                duplicates += max(0, walked + common - max(walked, protected))
            node.device = True
            self._register(node)
            walked, key = walked + common, key[common:]
            if walked > counted:
                self._count(node)
        if key:
            leaf = self._new(list(key), node)
            leaf.priority = priority
            node.children[key[0]] = leaf
            for above in leaf.path():
                above.history = max(above.history, total)
            node = leaf
            if total > counted:
                self._count(node)
        return node, duplicates

    def _count(self, node: Node) -> None:
        """Count a hit, and write a node that was hit often enough, those above it first."""
        if self.write_policy == "write_back":
            return
        node.hits += 1
        threshold = THRESHOLDS[self.write_policy]
        if threshold is None or node.host or node.hits < threshold:
            return
        missing = []
        for above in node.path():
            if above.host:
                break
            missing.append(above)
        for above in reversed(missing):
            if not self._write(above):
                return

    def _write(self, node: Node) -> bool:
        short = len(node.key) - self.host_free
        if short > 0:
            self._evict_host(short)
        if len(node.key) > self.host_free:
            return False
        self.host_free -= len(node.key)
        self.written += len(node.key)
        node.host = True
        self.copied.append((node, node.key))
        if self.storage is not None:
            self.gone += self.storage.write(node.key)
        self._register(node)
        return True

    def _evict_host(self, need: int) -> None:
        target = self.host_free + need
        if self.write_policy == "write_back":
            for spare in (True, False):
                self._drop_duplicates(target, spare)
        while self.host_free < target:
            leaves = [node for node in self.root.below() if not node.device and self._is_idle(node)]
            if not leaves:
                return
            leaf = min(leaves, key=self.worth)
            self.host_evicted += len(leaf.key)
            self.host_evicted_leaves += 1
            self._delete(leaf)

    def _drop_duplicates(self, target: int, spare_leaves: bool) -> None:
        for node in list(self.duplicates):
            if self.host_free >= target:
                return
            if node.device and node.host:
                if node.host_locks or (spare_leaves and self._is_device_leaf(node)):
                    continue
                node.host = False
                self.host_free += len(node.key)
            self.duplicates.remove(node)

    @staticmethod
    def _is_idle(node: Node) -> bool:
        return node.locks == node.host_locks == 0 and not node.children

    @staticmethod
    def _is_device_leaf(node: Node) -> bool:
        return node.device and node.locks == 0 and not any(c.device for c in node.children.values())

    def leaves(self) -> list[Node]:
        """Return the leaves on the device that may be evicted, next to leave first."""
        return sorted(filter(self._is_device_leaf, self.root.below()), key=self.worth)

    def _delete(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.key[0]]
        self.host_free += len(node.key) if node.host else 0
        if node in self.duplicates:
            self.duplicates.remove(node)
        node.device = node.host = False
        self.gone += node.key

    def evict(self, pages: int) -> int:
        """Evict leaves from the device until ``pages`` are free or none is left; return the pages freed."""
        freed, kept = 0, set[Node]()
        while freed < pages:
            leaves = [node for node in self.root.below() if node not in kept and self._is_device_leaf(node)]
            if not leaves:
                break
            leaf = min(leaves, key=self.worth)
            self.evicted_leaves += 1
            if leaf.host or (self.write_policy == "write_back" and self._write(leaf)):
                leaf.device = False
            elif any(node.locks or node.host_locks for node in leaf.below()):
                kept.add(leaf)
                continue
            else:
                for node in [*reversed(list(leaf.below())), leaf]:
                    self._delete(node)
            freed += len(leaf.key)
        self.evicted_pages += freed
        return freed

    def take_for_prefetch(self, storage: Storage, anchor: Node, wanted: Sequence[Key], least: int) -> int:
        """Return how many pages behind ``anchor`` come from storage; room of the host is taken for them.

        Fewer than ``least`` are not worth it, asked for or found; where the host has no room for all, the
        first of them come.
        """
        if len(wanted) < least or not (anchor is self.root or anchor.host):
            return 0
        pages = storage.found(wanted)
        if pages < least:
            return 0
        if pages > self.host_free:
            anchor.host_locks += 1
            self._evict_host(pages)
            anchor.host_locks -= 1
            pages = min(pages, self.host_free)
        if pages < least:
            return 0
        self.host_free -= pages
        storage.read(wanted[:pages])
        return pages

    def insert_host(self, anchor: Node, key: Sequence[Key]) -> int:
        """Add pages from storage behind ``anchor``; return how many the tree had no use for."""
        node, spare, total = anchor, 0, len(key)
        node.last = self._now()
        while key and (child := node.children.get(key[0])) is not None:
            child.last = self._now()
            common = self._common(child, key)
            node = child if common == len(child.key) else self._split(child, common)
            if node.host or self.write_policy == "write_back":
                spare += common
            node.host |= self.write_policy != "write_back"
            key = key[common:]
        if key and node is not self.root and not node.host and self.write_policy != "write_back":
            spare = total
        elif key:
            leaf = self._new(list(key), node)
            leaf.device, leaf.host, leaf.priority = False, True, node.priority
            node.children[key[0]] = leaf
            end = leaf.end()
            for above in leaf.path():
                above.history = max(above.history, end)
        self.host_free += spare
        return spare

    def load(self, node: Node) -> None:
        """Give the path of a node, deepest first, its copies on the device."""
        for above in node.path():
            if not above.device:
                above.device = True
                self._register(above)
