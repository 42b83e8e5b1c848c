"""Each block of a hit: its key, its tokens, and every tier and machine that has a copy.

A manual lookup is by keys or token ids, at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kvcache_sim import _core
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.channels.channel import NOT_YET, Transmission
from kvcache_sim.workload.block_names import BlockNames, BlockTokens


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A copy of a block: its machine and tier, and the ready times of its first layer and of all, in ns.

    A copy that waits for its channel has the times at which it arrives if nothing else is queued. A time is
    None while it is unknown: its channel is served layer by layer, copies that the store has yet to order go
    first, or the copy waits for space on its tier. A ready copy always has both times.
    """

    machine: int
    tier: str
    first_layer_ready_at_ns: int | None
    ready_at_ns: int | None

    def is_ready(self, at_ns: int) -> bool:
        """Return True if the whole copy is known to be ready at a time (ns)."""
        return self.ready_at_ns is not None and self.ready_at_ns <= at_ns


@dataclass(frozen=True, slots=True)
class ListedBlock:
    """A block of a hit: its index in the prompt, its names, its tokens and its copies, machine by machine.

    ``key`` identifies the whole prefix, ``hash_id`` is the trace's id that covers the block. Answers that no
    later prompt contains have no id and no tokens; ``tokens`` is also empty if none were requested.
    """

    index: int
    key: int
    hash_id: int | str | None
    tokens: tuple[int, ...]
    copies: tuple[BlockCopy, ...]


def list_blocks(
    trees: Mapping[int, MarkingStore | None],
    request: int,
    blocks: int,
    names: BlockNames,
    tokens: BlockTokens | None = None,
    *,
    replicas: Sequence[_core.Replica],
) -> tuple[ListedBlock, ...]:
    """Return the first ``blocks`` blocks of a request with every copy on the given machines.

    Changes nothing, recency included. Cost: one walk per machine, one entry per block and copy.

    Args:
        trees: The tree of each machine, by number.
        request: Index of the request in the trace.
        blocks: Number of leading blocks.
        names: Names of the blocks.
        tokens: Contents of the blocks; None leaves them out.
        replicas: All machines of the core, a shared pool last, for the times of waiting copies.

    Returns:
        The blocks, in the order of the prompt.

    Raises:
        UsageError: A machine has no tree.
    """

    @cache
    def projected(machine: int, move: int) -> Transmission:
        unknown = Transmission(NOT_YET, NOT_YET, NOT_YET, 0)
        return _core.projected(replicas, machine, move) or unknown

    copies: list[list[BlockCopy]] = [[] for _ in range(blocks)]
    keys = [names.key(request, block) for block in range(blocks)]
    for machine, tree in trees.items():
        first = 0
        for end, found in marking(tree).residency(request, blocks):
            here = []
            for tier, move, first_layer_ns, ready_ns, _ in found:
                if first_layer_ns >= NOT_YET:
                    times = projected(machine, move)
                    first_layer_ns, ready_ns = times.first_layer_ns, times.completion_ns
                here.append(BlockCopy(machine, TIERS[tier], _known(first_layer_ns), _known(ready_ns)))
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
    """Return the request with the longest common prefix of block keys, and its number of blocks.

    Every block of these keys that a cache over this trace can have is on that request's path. Cost: one key
    per request, then the keys of requests with the same prefix.

    Args:
        names: Names of the trace's blocks.
        keys: Keys of consecutive blocks, from the first.

    Returns:
        (index of the request, common leading blocks); (0, 0) without a match.
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
    """Return the request with the longest common prefix of token ids, and its number of full blocks.

    Tokens after the last full block are ignored. Cost: one prompt's tokens per request.

    Args:
        names: Names of the trace's blocks.
        contents: Contents of the trace's blocks.
        tokens: Token ids, from the first.

    Returns:
        (index of the request, common leading blocks); (0, 0) without a match.
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
    """Return the leading blocks with a reachable copy that is ready by a time, with their ready copies.

    Args:
        blocks: The blocks of a hit, in order.
        at_ns: The time, in ns.
        reaches: Returns True for a copy that the machine can read.
    """
    ready = []
    for block in blocks:
        copies = tuple(copy for copy in block.copies if copy.is_ready(at_ns))
        if not any(map(reaches, copies)):
            break
        ready.append(replace(block, copies=copies))
    return tuple(ready)
