"""Marconi: a hybrid model's states are kept where prompts branch and answers end, and go by FLOPs a byte.

Source: arXiv 2411.19379 (MLSys'25) and its artifact. A prefix can be used only where a state is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcache_sim.errors import UsageError
from kvcache_sim.replay.papers.hybrid_cost import HybridCost


class Exchange(NamedTuple):
    """A prompt's whole blocks, ``prompt_blocks`` of them, and those that its answer fills."""

    prompt_blocks: int
    ids: Sequence[int]


@dataclass(slots=True, eq=False)
class StateNode:
    """The end of an edge of blocks; ``depth`` blocks are its prefix, request ``last`` used it last."""

    parent: StateNode | None
    ids: Sequence[int]
    depth: int
    #: Whether a state is kept here; a branch of answers alone has none.
    state: bool = False
    last: int = -1
    efficiency: float = 0.0
    children: dict[int, StateNode] = field(default_factory=dict)


def normed(values: Sequence[float]) -> list[float]:
    """Return values from 0 to 1, the least 0 and the most 1; all 1 where they are equal."""
    least, most = min(values), max(values)
    return [(value - least) / (most - least) for value in values] if most > least else [1.0] * len(values)


def utilities(ages: Sequence[int], efficiencies: Sequence[float], alpha: float) -> list[float]:
    """Return recency + alpha · FLOP efficiency of the candidates; the least goes."""
    recent = normed([1 / age for age in ages])
    return [r + alpha * e for r, e in zip(recent, normed(efficiencies), strict=True)]


class StateTree:
    """A radix tree of blocks with states at some of its nodes, in so many bytes of KV and states.

    ``alpha`` may be changed between requests. Ages are counted in requests; of one request's states the
    shallowest is the oldest, as a prompt comes before its answer. Cost: a look at every node an eviction.
    """

    def __init__(self, capacity_bytes: int, block_tokens: int, cost: HybridCost, alpha: float = 0.0) -> None:
        self._capacity, self._tokens, self._cost, self.alpha = capacity_bytes, block_tokens, cost, alpha
        self._root = StateNode(None, (), 0)
        self._nodes: list[StateNode] = []
        self._bytes = self._now = self.evictions = 0

    def serve(self, sequence: Exchange) -> int:
        """Serve a request and keep its blocks; return how many of its prompt's first blocks were usable.

        A state is kept where the prompt leaves what is known, and at the end. Raises UsageError for what does
        not fit.
        """
        self._now += 1
        prompt = sequence.ids[: sequence.prompt_blocks]
        node, inside = self._walk(prompt)
        hit = node
        while not hit.state and hit.parent is not None:
            hit = hit.parent
        found, hit.last = hit.depth, self._now
        branch = self._split(node, prompt, inside) if inside else node
        if branch is not self._root and not branch.state:
            self._keep_state(branch)
        node, inside = self._walk(sequence.ids)
        if inside:
            node = self._split(node, sequence.ids, inside)
        rest = sequence.ids[node.depth :]
        if rest:
            self._bytes += len(rest) * self._tokens * self._cost.token_bytes
            node = self._add(node, rest)
        if node is not self._root:
            if not node.state:
                self._keep_state(node)
            node.last = self._now
        self._make_room(node)
        return found

    def _walk(self, ids: Sequence[int]) -> tuple[StateNode, int]:
        """Return the deepest node on the way, and how many blocks are known of the edge behind it."""
        node = self._root
        while node.depth < len(ids):
            child = node.children.get(ids[node.depth])
            if child is None:
                break
            asked = ids[node.depth : child.depth]
            same = next(
                (k for k, (a, b) in enumerate(zip(asked, child.ids, strict=False)) if a != b), len(asked)
            )
            if same < len(child.ids):
                return node, same
            node = child
        return node, 0

    def _add(self, parent: StateNode, ids: Sequence[int]) -> StateNode:
        node = StateNode(parent, ids, parent.depth + len(ids))
        parent.children[ids[0]] = node
        self._measure(node)
        self._nodes.append(node)
        return node

    def _split(self, parent: StateNode, ids: Sequence[int], blocks: int) -> StateNode:
        below = parent.children[ids[parent.depth]]
        node = self._add(parent, below.ids[:blocks])
        self._hang(below, node, below.ids[blocks:])
        return node

    def _hang(self, node: StateNode, parent: StateNode, ids: Sequence[int]) -> None:
        node.parent, node.ids = parent, ids
        parent.children[ids[0]] = node
        self._measure(node)

    def _measure(self, node: StateNode) -> None:
        assert node.parent is not None
        node.efficiency = self._cost.efficiency(node.parent.depth * self._tokens, node.depth * self._tokens)

    def _keep_state(self, node: StateNode) -> None:
        node.state, node.last = True, self._now
        self._bytes += self._cost.state_bytes

    def _make_room(self, end: StateNode) -> None:
        held = set()
        node: StateNode | None = end
        while node is not None:
            held.add(id(node))
            node = node.parent
        while self._bytes > self._capacity:
            free = [n for n in self._nodes if n.state and len(n.children) < 2 and id(n) not in held]
            if not free:
                got = f"{self._bytes:,} bytes for {end.depth} blocks"
                raise UsageError("a prompt does not fit the cache", "--capacity", got, f"{self._capacity:,}")
            self._evict(self._victim(free))

    def _victim(self, free: list[StateNode]) -> StateNode:
        if not self.alpha:
            return min(free, key=lambda n: (n.last, n.depth))
        ages = [self._now - n.last for n in free]
        worth = utilities(ages, [n.efficiency for n in free], self.alpha)
        ranked = zip(worth, free, strict=True)
        return min(ranked, key=lambda pair: (pair[0], pair[1].last, pair[1].depth))[1]

    def _evict(self, node: StateNode) -> None:
        self.evictions += 1
        self._bytes -= self._cost.state_bytes
        if node.children:
            self._join(node)
            return
        self._bytes -= len(node.ids) * self._tokens * self._cost.token_bytes
        parent = node.parent
        assert parent is not None
        del parent.children[node.ids[0]]
        self._nodes.remove(node)
        if parent.parent is not None and not parent.state and len(parent.children) == 1:
            self._join(parent)

    def _join(self, node: StateNode) -> None:
        """Give a node's blocks to its one child, and when it was used to one that has a state."""
        (child,) = node.children.values()
        assert node.parent is not None
        if child.state:
            child.last = max(child.last, node.last)
        self._nodes.remove(node)
        self._hang(child, node.parent, [*node.ids, *child.ids])
