"""Copying blocks of a machine up, tier by tier, to where they are loaded from."""

from __future__ import annotations

from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.tiers import STAGING


def stage_up(
    store: TieredStore, request: int, blocks: tuple[int, int], source: tuple[int, int], now_ns: int
) -> list[tuple[int, int]]:
    """Copy blocks (first, past the last) up to the tier they are loaded from, each copy fed by the one below.

    ``source``: (tier that has them, the move still writing them there or NO_MOVE). Returns (tier it reads,
    move) of each copy in their order. Where a tier has no room the copies end below it: the blocks are nearer
    than before, and not where they are loaded from.
    """
    level, by = source
    moves: list[tuple[int, int]] = []
    while level > STAGING:
        move = store.stage(request, blocks, level - 1, None if by == NO_MOVE else by, now_ns)
        if move is None:
            break
        moves.append((level, move))
        level, by = level - 1, move
    return moves


def is_staged(moves: list[tuple[int, int]]) -> bool:
    """Return whether copies lead up to where blocks are loaded from."""
    return bool(moves) and moves[-1][0] == STAGING + 1
