"""Cache-aware: the longest prefix if it is long enough, else the least load; the rule of SGLang's router.

Its gateway keeps a tree of the prompts sent to each machine: it sees no cache, and evicts by size alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival


class Match(NamedTuple):
    """The part of a prompt in the tree: leading ids, and the machine of the last node they reach."""

    ids: int
    machine: int


class _Node:
    """An edge's ids and the machines that received them, with their epochs (0: an inner node only)."""

    __slots__ = ("children", "epochs", "ids", "number", "owner", "parent")

    def __init__(self, ids: list[int], parent: _Node | None, number: int, owner: int | None) -> None:
        self.ids, self.parent, self.number, self.owner = ids, parent, number, owner
        self.children: dict[int, _Node] = {}
        self.epochs: dict[int, int] = {}

    def asked(self) -> int | None:
        """Return the machine of this node: its creator, or once that is evicted a permanent replacement."""
        if self.owner not in self.epochs:
            self.owner = min(self.epochs, default=None)
        return self.owner

    def split(self, shared: int, number: int) -> _Node:
        """Insert a parent node for the first ids, with the same machines."""
        assert self.parent is not None
        upper = _Node(self.ids[:shared], self.parent, number, self.owner)
        upper.epochs.update(self.epochs)
        self.parent.children[upper.ids[0]] = upper
        self.ids, self.parent = self.ids[shared:], upper
        upper.children[self.ids[0]] = self
        return upper

    def is_leaf_of(self, machine: int) -> bool:
        """Return True if a machine received this node and none below it."""
        below = any(machine in child.epochs for child in self.children.values())
        return machine in self.epochs and not below


class GatewayTree:
    """A radix tree over the ids of prompts, one for all machines; each node has the machines that got it.

    Its counters follow the source: an epoch for each match and each insertion; an insertion renews the last
    node alone; one match in eight renews the matched node. A node returns its creator while that machine is
    in the node, even if other machines received it later. The source takes any machine of a hash map, here it
    is the lowest number; of equal epochs the older node is evicted first.

    Source: sgl-model-gateway/src/policies/tree.rs of sgl-project/sglang at 03744dbe: ``insert`` (line 331),
    ``prefix_match_with_counts`` (line 466), ``evict_tenant_by_size`` (line 615); the same in
    crates/kv_index/src/string_tree.rs of lightseekorg/smg. Sizes here are ids, not characters.
    """

    def __init__(self, machines: int) -> None:
        self._epoch = 0
        self._nodes = 1
        self._root = _Node([], None, self._nodes, None)
        #: Ids in the tree by machine.
        self.sizes = [0] * machines
        for machine in range(machines):  # the gateway inserts an empty text for every worker
            self.insert([], machine)

    def match(self, ids: list[int]) -> Match:
        """Return the number of leading ids in the tree, and the machine of the last node."""
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
        """Insert a prompt that was sent to a machine."""
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
        """Evict leaves of each machine with more than ``most_ids`` ids, the smallest epoch first.

        A parent that has become a leaf follows with its own epoch. Cost: O(nodes) if any machine has more.
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


def _shared(edge_ids: list[int], ids: list[int], at: int) -> int:
    """Return the number of equal ids from position ``at`` on."""
    most = min(len(edge_ids), len(ids) - at)
    if edge_ids[:most] == ids[at : at + most]:
        return most
    return next(k for k in range(most) if edge_ids[k] != ids[at + k])


#: Size of the gateway's tree, in characters or tokens per machine (``--max-tree-size``).
MOST_TREE_TOKENS = 1 << 26


class CacheAware:
    """The machine that has most of the prompt, if that is more than ``cache_threshold`` of its tokens.

    Otherwise, and always while loads are too uneven, the machine least in (load, requests sent there,
    number). Load is unfinished requests; it is too uneven if the largest is more than
    ``balance_abs_threshold`` requests above the smallest and more than ``balance_rel_threshold`` times it. Of
    machines with equal cached prefixes the least loaded is chosen, by the same order.

    With ``index.kind: truth`` the router sees the machines' caches, or its delayed index. With
    ``gateway-tree`` it has the gateway's tree of sent prompts (``gateway_tree``). The tree returns the first
    machine that received a prefix and never sees an eviction. It is cut back to ``index_blocks`` per machine
    (default: 2²⁶ tokens) every ``index.eviction_interval``.

    Why: Reuse where prompts share much, even loads where they do not or where reuse has filled a queue.
    Example: With a threshold of 0.3, 60 % of a prompt on machine 1 sends it there; 20 % sends it to the least
    load.
    Source: ``cache_aware`` of sgl-model-gateway (cache_aware.rs at b93974f1) and of lightseekorg/smg at
    73da68ca9, classic form.
    Cost: one lookup on all machines, none if loads are uneven; O(ids of the prompt) with the tree.
    """

    needs = Needs(
        caches=True,
        keys=("cache_threshold", "balance_abs_threshold", "balance_rel_threshold"),
        own_index="gateway-tree",
    )

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._settings = view.settings
        by_tree = view.settings.index_kind == "gateway-tree"
        self._cached: _Cached = _Sent(view) if by_tree else _Found(view)
        #: Requests sent to each machine so far.
        self._sent = [0] * len(view.replicas)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine by prefix or by load."""
        loads = self._view.requests()
        candidates: Sequence[int] = range(len(loads))
        if not self._uneven(loads):
            share, machines = self._cached.best(sequence)
            if share > self._settings.cache_threshold:
                candidates = machines
        chosen = min(candidates, key=lambda machine: (loads[machine], self._sent[machine], machine))
        self._cached.sent(sequence, chosen)
        self._sent[chosen] += 1
        return chosen

    def _uneven(self, loads: Sequence[int]) -> bool:
        least, most = min(loads), max(loads)
        settings = self._settings
        return most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least


class _Cached(Protocol):
    """Finds the machines with the longest part of a prompt."""

    def best(self, sequence: Arrival) -> tuple[float, Sequence[int]]:
        """Return the largest share of the prompt's tokens (0 to 1), and the machines that have it."""
        ...

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Record the choice."""
        ...


class _Found:
    """By the machines' caches."""

    def __init__(self, view: RouterView) -> None:
        self._view = view

    def best(self, sequence: Arrival) -> tuple[float, Sequence[int]]:
        """Return the largest share and all machines that have it."""
        found = self._view.look(sequence).found_blocks
        longest = max(found)
        share = longest * self._view.block_size_tokens / sequence.prompt_num_tokens
        return share, [machine for machine, blocks in enumerate(found) if blocks == longest]

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Do nothing: the next lookup sees the prompt."""


class _Sent:
    """By the gateway's tree of sent prompts."""

    def __init__(self, view: RouterView) -> None:
        assert view.prompts is not None
        self._view, self._prompts = view, view.prompts
        self._tree = GatewayTree(len(view.replicas))
        blocks = view.settings.index_blocks
        tokens = MOST_TREE_TOKENS if blocks is None else blocks * view.block_size_tokens
        self._most_ids = tokens // view.prompts.id_tokens
        self._interval_ns = view.settings.index_eviction_interval_ns
        self._cut_back = 0

    def best(self, sequence: Arrival) -> tuple[float, Sequence[int]]:
        """Return the share of the prompt in the tree, and the tree's machine."""
        self._keep_to_size()
        match = self._tree.match(self._prompts.ids(sequence))
        tokens = min(match.ids * self._prompts.id_tokens, sequence.prompt_num_tokens)
        return tokens / sequence.prompt_num_tokens, [match.machine]

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Insert the prompt."""
        self._keep_to_size()
        self._tree.insert(self._prompts.ids(sequence), machine)

    def _keep_to_size(self) -> None:
        """Evict once if an interval has ended: nothing changed the tree since."""
        intervals = self._view.now_ns() // self._interval_ns
        if intervals > self._cut_back:
            self._cut_back = intervals
            self._tree.evict(self._most_ids)
