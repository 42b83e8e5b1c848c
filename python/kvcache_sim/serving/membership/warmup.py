"""A machine that comes copies what a peer has: the prompts that the peer was asked for last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvcache_sim.cache.store import GpuStore


class Copied(NamedTuple):
    """The blocks of one prompt that a machine gets."""

    request: int
    blocks: int


def worth_copying(
    peer: GpuStore, requests: Iterable[int], prompt_blocks: Sequence[int], most_blocks: int
) -> list[Copied]:
    """Return the prompts to copy, the one asked for last first, as far as the peer has them.

    Prompts that share blocks count them each: at most ``most_blocks`` are copied. Cost: a look-up a prompt.
    """
    found, left = [], most_blocks
    for request in requests:
        blocks = min(peer.peek(request, prompt_blocks[request])[0], left)
        if blocks:
            found.append(Copied(request, blocks))
            left -= blocks
        if not left:
            break
    return found


def place(store: GpuStore, copies: Sequence[Copied], now_ns: int) -> int:
    """Put copies on a machine that nobody uses, the last asked for most recent; return the blocks.

    What does not fit beside the others is left out. Cost: a few calls a prompt.
    """
    placed = 0
    for request, blocks in reversed(copies):
        here = store.peek(request, blocks)[1]
        lease = store.acquire(request, here)
        missing = blocks - here
        if missing and missing <= store.room(0).free_blocks and store.reserve(lease, missing, now_ns) == []:
            store.commit(lease, blocks, (now_ns, now_ns))
            placed += missing
        store.release(lease, now_ns)
    return placed
