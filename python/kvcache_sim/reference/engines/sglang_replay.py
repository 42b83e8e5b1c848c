"""Requests through the reference of SGLang's radix tree, times ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.requests import Overlap, Requests
from kvcache_sim.reference.engines.sglang_tree import Node, SglangTree
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.replay.request import REJECTED


@dataclass(slots=True)
class Held:
    """A running request: its pages at the end, its locked node, and the tokens before it."""

    keys: list[Key]
    prompt_pages: int
    total_tokens: int
    node: Node
    protected: int
    inserted: int = 0


@dataclass(slots=True)
class TokenRoom:
    """The tree and the free tokens around it."""

    tree: SglangTree
    page: int
    free: int
    evict_calls: int = 0

    def paged(self, tokens: int) -> int:
        """Return tokens in whole pages, the last one filled up."""
        return -(-tokens // self.page) * self.page

    def slack(self) -> int:
        """Return what an allocation asks for beyond its tokens."""
        return self.page if self.page > 1 else 0

    def demand(self, tokens: int) -> None:
        """Evict until ``tokens`` are free, if need be."""
        if tokens > self.free:
            self.evict_calls += 1
            self.free += self.tree.evict(-(-(tokens - self.free) // self.page)) * self.page

    def checkpoint(self, held: Held, tokens: int) -> None:
        """Insert the first ``tokens`` tokens, give duplicates back, lock the result."""
        pages = tokens // self.page
        key = held.keys[:pages]
        known = self.tree.insert(key, held.inserted // self.page) * self.page
        if 0 < held.prompt_pages < pages:
            self.tree.insert(key[: held.prompt_pages], pages)
        held.inserted = pages * self.page
        self.free += known - held.protected
        node, _ = self.tree.match(key)
        held.protected = pages * self.page
        self.tree.lock(held.node, -1)
        self.tree.lock(node, 1)
        held.node = node

    def run(self, held: Held, n: int) -> None:
        """Prefill a prompt of ``n`` tokens and decode the rest."""
        self.demand(n - held.protected + self.slack())
        self.free -= self.paged(n) - held.protected
        self.checkpoint(held, n)
        for position in range(n, held.total_tokens):
            self.demand(self.page)
            if position % self.page == 0:
                self.free -= self.page

    def finish(self, held: Held) -> None:
        """Insert everything, give back the rest of the last page, unlock."""
        self.checkpoint(held, held.total_tokens)
        self.free += self.paged(held.total_tokens) - held.protected
        self.tree.lock(held.node, -1)


def replay_sglang_reference(requests: Requests, policy: str, capacity_tokens: int) -> dict[str, Any]:
    """Replay every request and return what ``_core.EngineRequests.sglang`` returns, leaves as text."""
    page = requests.block_size
    tree = SglangTree(policy)
    room, overlap = TokenRoom(tree, page, capacity_tokens), Overlap(requests.window)
    causes, running = MissCauses(page), dict[int, Held]()
    hits: list[int] = []
    forced = 0
    for request, n in enumerate(requests.input_tokens):
        total, whole, evictions = requests.total_tokens[request], requests.whole(request), len(tree.evicted)
        for oldest in overlap.before_start():
            room.finish(running.pop(oldest))
        askable = requests.keys.keys(request, requests.limit(request))
        node, pages = tree.match(askable)
        tree.lock(node, 1)
        causes.count(n, askable, pages, lambda key: False)
        causes.learn(whole)
        held = Held(whole, n // page, total, node, pages * page)

        def short(held: Held = held) -> bool:
            need = room.paged(held.total_tokens) - held.protected + room.slack()
            return room.free + tree.evictable_pages() * page < need

        while short() and overlap.running:
            room.finish(running.pop(overlap.running.popleft()))
            forced += 1
        if short():
            tree.lock(node, -1)
            causes.reject()
            hits.append(REJECTED)
            continue
        room.run(held, n)
        causes.evict(request, tree.evicted[evictions:])
        hits.append(pages * page)
        running[request] = held
        for ended in overlap.start(request):
            room.finish(running.pop(ended))
    while overlap.running:
        room.finish(running.pop(overlap.running.popleft()))
    nodes, leaves = tree.nodes(), tree.leaves()
    return {
        "hits": hits,
        "forced": forced,
        "evict_calls": room.evict_calls,
        "pages": sum(len(node.key) for node in nodes),
        "nodes": len(nodes),
        "evicted_pages": len(tree.evicted),
        "evicted_nodes": tree.evicted_nodes,
        "free_tokens": room.free,
        "leaf_lines": [
            f"{requests.keys.first_token_label(leaf.key[0])}:{len(leaf.key) * page}" for leaf in leaves
        ],
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
