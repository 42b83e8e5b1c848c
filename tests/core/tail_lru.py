"""A model of T-LRU (arXiv 2510.15152, Algorithm 1) on one cache without time: one request after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class Node:
    """A resident block: what comes before it, the last request that used it, the deepest its branch ever was."""

    parent: Node | None
    depth: int
    last: int = 0
    history: int = 0
    children: int = 0


def tail_lru_hits(
    prompts: Sequence[Sequence[int]], capacity_blocks: int, limit_blocks: int, next_blocks: int
) -> list[int]:
    """Return how many leading blocks of each prompt are resident when it comes.

    A leaf is safe while the blocks left before it are at least history + next prompt - limit. Safe leaves go
    first, each kind by least recent use, of one request's the deepest. Cost: the cache for each eviction.
    """
    cache: dict[int, Node] = {}
    hits = []
    for number, ids in enumerate(prompts):
        found = next((n for n, block in enumerate(ids) if block not in cache), len(ids))
        hits.append(found)
        path = [cache[block] for block in ids[:found]]
        for block in ids[found:]:
            if len(cache) == capacity_blocks:
                leaves = [b for b, node in cache.items() if not node.children and b not in ids]
                spare = limit_blocks - next_blocks
                victim = min(
                    leaves,
                    key=lambda b: (
                        cache[b].depth - 1 < max(cache[b].history - spare, 0),
                        cache[b].last,
                        -cache[b].depth,
                    ),
                )
                parent = cache.pop(victim).parent
                if parent is not None:
                    parent.children -= 1
            node = cache[block] = Node(path[-1] if path else None, len(path) + 1)
            if path:
                path[-1].children += 1
            path.append(node)
        for node in path:
            node.last = number
            node.history = max(node.history, len(path))
    return hits
