"""Each block of a hit: its key, its tokens, and every tier and machine that has a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.channels.channel import NOT_YET
from kvcache_sim.tiers import TIERS
from kvcache_sim.workload.block_names import BlockNames
from kvcache_sim.workload.block_tokens import BlockTokens


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A copy of a block: its machine and tier, and when its first layer and all of it are ready, in ns.

    A time is None while it is not known: the transmission has not been queued, or is on a channel whose times
    come with its layers. A copy that is ready always has both.
    """

    machine: int
    tier: str
    first_layer_ready_at_ns: int | None
    ready_at_ns: int | None

    def is_ready(self, at_ns: int) -> bool:
        """Return whether all of it is there at a time, as far as that is known."""
        return self.ready_at_ns is not None and self.ready_at_ns <= at_ns


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


def list_blocks(
    machines: Sequence[tuple[int, MarkingStore | None]],
    request: int,
    blocks: int,
    names: BlockNames,
    tokens: BlockTokens | None = None,
) -> tuple[ListedBlock, ...]:
    """Return the first ``blocks`` blocks of a request with every copy on the given machines.

    ``machines``: the number and the tree of each; UsageError where one has none.
    Changes nothing, recency included. Cost: a walk a machine, then one entry a block and copy.
    """
    copies: list[list[BlockCopy]] = [[] for _ in range(blocks)]
    keys = [names.key(request, block) for block in range(blocks)]
    for machine, tree in machines:
        first = 0
        for end, found in marking(tree).residency(request, blocks):
            here = [
                BlockCopy(machine, TIERS[tier], _known(first_layer_ns), _known(ready_ns))
                for tier, _, first_layer_ns, ready_ns, _ in found
            ]
            for block in range(first, min(end, blocks)):
                copies[block] += here
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


def _known(time_ns: int) -> int | None:
    return None if time_ns >= NOT_YET else time_ns
