"""Each block of a hit: its key, its tokens, and every tier and machine that has a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvcache_sim.cache.block_names import BlockNames
from kvcache_sim.cache.channel import NOT_YET
from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.operations.block_tokens import BlockTokens
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.operations.ready_times import ReadyTimes
from kvcache_sim.cache.store import NO_COPY, NO_MOVE
from kvcache_sim.tiers import TIERS


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A copy of a block: its machine and tier, and when its first layer and all of it are ready, in ns.

    ``NOT_YET`` where the transmission has not been queued, None where it is ready since nobody noted when.
    """

    machine: int
    tier: str
    first_layer_ready_at_ns: int | None
    ready_at_ns: int | None


@dataclass(frozen=True, slots=True)
class ListedBlock:
    """A block of a hit: its place in the prompt, its names, its tokens and its copies, machine by machine.

    ``key`` names the content and all before it, ``hash_id`` is the trace's id that covers the block. Answers
    that no later prompt shows have no id and no tokens; ``tokens`` is empty too where none were asked for.
    """

    index: int
    key: int
    hash_id: int | str | None
    tokens: tuple[int, ...]
    copies: tuple[BlockCopy, ...]


class Place(NamedTuple):
    """A machine to list from: its mover, and the times of its copies where they are kept."""

    mover: Mover
    times: ReadyTimes | None = None


def list_blocks(
    places: Sequence[Place], request: int, blocks: int, names: BlockNames, tokens: BlockTokens | None = None
) -> tuple[ListedBlock, ...]:
    """Return the first ``blocks`` blocks of a request with every copy on the given machines.

    Changes nothing, recency included. Cost: a walk a machine, then one entry a block and copy.
    """
    copies: list[list[BlockCopy]] = [[] for _ in range(blocks)]
    keys = [names.key(request, block) for block in range(blocks)]
    for place in places:
        first = 0
        for end, by in marking(place.mover).copies(request, blocks):
            for block in range(first, min(end, blocks)):
                copies[block] += _copies(place, keys[block], by)
            first = end
    return tuple(
        ListedBlock(
            block,
            keys[block],
            names.hash_id(request, block),
            () if tokens is None else tokens.of(request, block),
            tuple(copies[block]),
        )
        for block in range(blocks)
    )


def _copies(place: Place, key: int, by: Sequence[int]) -> list[BlockCopy]:
    """Return the copies of one block on one machine, fast to slow."""
    mover, kept = place
    found = []
    for tier, move in enumerate(by):
        if move == NO_COPY:
            continue
        times: tuple[int | None, int | None] = (None, None)
        if move != NO_MOVE:
            transfer = mover.transfers.get(move)
            times = (NOT_YET, NOT_YET)
            if transfer is not None and transfer.sent is not None:
                times = (transfer.sent.first_layer_ns, transfer.sent.completion_ns)
        elif kept is not None:
            times = kept.get(key, tier) or times
        found.append(BlockCopy(mover.machine, TIERS[tier], *times))
    return found
