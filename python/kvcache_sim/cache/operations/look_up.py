"""What a look-up by hand is given besides a request: keys or token ids, and a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvcache_sim.cache.operations.listing import BlockCopy, ListedBlock
from kvcache_sim.workload.block_names import BlockNames
from kvcache_sim.workload.block_tokens import BlockTokens


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
