"""Each block of a hit: its key, its tokens, and every tier and machine that has a copy.

A look-up by hand is of keys or token ids, at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.channels.channel import NOT_YET
from kvcache_sim.tiers import TIERS
from kvcache_sim.workload.block_names import BlockNames, BlockTokens


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


def request_of_keys(names: BlockNames, keys: Sequence[int]) -> tuple[int, int]:
    """Return the request of the trace with the longest beginning of these keys, and its blocks.

    Whatever a cache over this trace can have of the keys is on that request's path. (0, 0) where no request
    begins so. Cost: a key a request, then those of the requests that begin alike.
    """
    best, blocks = 0, 0
    alike: Sequence[int] = range(names.requests)
    for block, key in enumerate(keys):
        alike = [request for request in alike if names.key(request, block) == key]
        if not alike:
            break
        best, blocks = alike[0], block + 1
    return best, blocks


def request_of_tokens(names: BlockNames, contents: BlockTokens, tokens: Sequence[int]) -> tuple[int, int]:
    """Return the request whose full blocks begin most like these token ids, and how many do; else (0, 0).

    Tokens after the last full block name none. Cost: one prompt's tokens a request.
    """
    size = contents.block_size_tokens
    wanted = [tuple(tokens[first : first + size]) for first in range(0, len(tokens) - size + 1, size)]
    best, most = 0, 0
    for request in range(names.requests):
        parts = (block for block, part in enumerate(wanted) if contents.of(request, block) != part)
        blocks = next(parts, len(wanted))
        if blocks > most:
            best, most = request, blocks
    return best, most


def ready_by(
    blocks: Sequence[ListedBlock], at_ns: int, reaches: Callable[[BlockCopy], bool]
) -> tuple[ListedBlock, ...]:
    """Return the leading blocks of which a copy within reach is whole by a time, with the copies that are."""
    ready = []
    for block in blocks:
        copies = tuple(copy for copy in block.copies if copy.is_ready(at_ns))
        if not any(map(reaches, copies)):
            break
        ready.append(replace(block, copies=copies))
    return tuple(ready)
