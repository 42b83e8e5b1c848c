"""SGLang's gateway's own tree of what it sent where: it sees no cache, and forgets by its size alone."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Match(NamedTuple):
    """What the tree has of a prompt: leading ids, and the machine asked for the last node they reach."""

    ids: int
    machine: int


class _Node:
    """An edge's ids and who was sent them, with the epoch of each (0: only on the way to more)."""

    __slots__ = ("children", "epochs", "ids", "number", "owner", "parent")

    def __init__(self, ids: list[int], parent: _Node | None, number: int, owner: int | None) -> None:
        self.ids, self.parent, self.number, self.owner = ids, parent, number, owner
        self.children: dict[int, _Node] = {}
        self.epochs: dict[int, int] = {}

    def asked(self) -> int | None:
        """Return the machine that is asked for this: its maker, or once that is gone another one for good."""
        if self.owner not in self.epochs:
            self.owner = min(self.epochs, default=None)
        return self.owner

    def split(self, shared: int, number: int) -> _Node:
        """Put a node above for the first ids; it knows and asks the same machines."""
        assert self.parent is not None
        upper = _Node(self.ids[:shared], self.parent, number, self.owner)
        upper.epochs.update(self.epochs)
        self.parent.children[upper.ids[0]] = upper
        self.ids, self.parent = self.ids[shared:], upper
        upper.children[self.ids[0]] = self
        return upper

    def is_leaf_of(self, machine: int) -> bool:
        """Return whether a machine was sent this and nothing below."""
        below = any(machine in child.epochs for child in self.children.values())
        return machine in self.epochs and not below


class GatewayTree:
    """A radix tree over the ids of prompts, one for all machines; each node knows who was sent it.

    Its counters follow the source: an epoch for each match and each insertion; an insertion renews the last
    node alone; one match in eight renews the node it asks. A node asks whoever made it while that machine is
    still there, whoever else was sent it later. Where the source takes any machine of a hash map, here it is
    the lowest number; of equal epochs the older node goes first.

    Source: sgl-model-gateway/src/policies/tree.rs of sgl-project/sglang at 03744dbe: ``insert`` (line 331),
    ``prefix_match_with_counts`` (line 466), ``evict_tenant_by_size`` (line 615); the same in
    crates/kv_index/src/string_tree.rs of lightseekorg/smg. Sizes here are ids, not characters.
    """

    def __init__(self, machines: int) -> None:
        self._epoch = 0
        self._nodes = 1
        self._root = _Node([], None, self._nodes, None)
        #: Ids that each machine was sent and that are not forgotten.
        self.sizes = [0] * machines
        for machine in range(machines):  # the gateway inserts an empty text for every worker
            self.insert([], machine)

    def match(self, ids: list[int]) -> Match:
        """Return how many leading ids the tree has, and whom it asks."""
        node, at = self._root, 0
        while at < len(ids) and (child := node.children.get(ids[at])) is not None:
            node, shared = child, _shared(child.ids, ids, at)
            at += shared
            if shared < len(child.ids):
                break
        epoch, machine = self._next_epoch(), node.asked()
        if epoch % 8 == 0 and machine is not None:
            node.epochs[machine] = epoch
        return Match(at, machine or 0)

    def insert(self, ids: list[int], machine: int) -> None:
        """Note that a prompt was sent to a machine."""
        node, at = self._root, 0
        node.epochs.setdefault(machine, 0)
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                child = node.children[ids[at]] = _Node(ids[at:], node, self._next_number(), machine)
            elif (shared := _shared(child.ids, ids, at)) < len(child.ids):
                child = child.split(shared, self._next_number())
            if machine not in child.epochs:
                child.epochs[machine] = 0
                self.sizes[machine] += len(child.ids)
            node, at = child, at + len(child.ids)
        node.epochs[machine] = self._next_epoch()

    def evict(self, most_ids: int) -> None:
        """Forget leaves of each machine that has more ids than that, the smallest epoch first.

        A node above that has become a leaf follows with its own epoch. Cost: O(nodes) where any has more.
        """
        if max(self.sizes) <= most_ids:
            return
        leaves = [
            leaf for node in self._all() for leaf in self._leaves(node) if self.sizes[leaf[1]] > most_ids
        ]
        heapify(leaves)
        while leaves:
            _, machine, _, node = heappop(leaves)
            if self.sizes[machine] <= most_ids or not node.is_leaf_of(machine):
                continue
            self.sizes[machine] -= len(node.ids)
            del node.epochs[machine]
            parent = node.parent
            if parent is None:
                continue
            if not node.children and not node.epochs:
                del parent.children[node.ids[0]]
            if parent.is_leaf_of(machine):
                heappush(leaves, (parent.epochs[machine], machine, parent.number, parent))

    def _leaves(self, node: _Node) -> list[tuple[int, int, int, _Node]]:
        return [(node.epochs[m], m, node.number, node) for m in node.epochs if node.is_leaf_of(m)]

    def _all(self) -> list[_Node]:
        found = [self._root]
        for node in found:
            found.extend(node.children.values())
        return found

    def _next_number(self) -> int:
        self._nodes += 1
        return self._nodes

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch - 1


def _shared(own: list[int], ids: list[int], at: int) -> int:
    """Return how many ids agree from a place on."""
    most = min(len(own), len(ids) - at)
    if own[:most] == ids[at : at + most]:
        return most
    return next(k for k in range(most) if own[k] != ids[at + k])
